//! Redis behind TLS: one server, a cluster, and a master behind sentinels.

use std::path::Path;
use std::time::Duration;

use oncegate::engine::marks::{Mark, Unavailable};
use oncegate::marks::{MarksOptions, connect};

use super::faults::works_again;
use super::random_id;
use crate::servers::redis::{Cluster, Redis, Sentinels};

/// A store that trusts `certificate` alone.
fn trusting(url: &str, certificate: &Path) -> MarksOptions {
    MarksOptions {
        url: url.to_owned(),
        authorities: Some(std::fs::read(certificate).unwrap()),
        time_limit: Duration::from_secs(10),
        ..MarksOptions::default()
    }
}

async fn get(options: MarksOptions) -> Result<Option<Mark>, Unavailable> {
    connect(&options).unwrap().get(random_id()).await
}

/// Neither without knowing the certificate nor without TLS.
async fn assert_no_other_way_in(right: &MarksOptions) {
    let untrusting = MarksOptions { authorities: None, ..right.clone() };
    let plain = MarksOptions { url: right.url.replace("rediss", "redis"), ..right.clone() };
    for options in [untrusting, plain] {
        let told = get(options.clone()).await;
        assert!(told.is_err(), "{options:?}: {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_of_a_cluster_is_spoken_to_in_tls() {
    let (cluster, certificate) = Cluster::start_with_tls();
    // Of the other nodes it learns from this one.
    let first = format!("rediss+cluster://127.0.0.1:{}", cluster.nodes[0].port);
    for url in [&cluster.url, &first] {
        let options = trusting(url, &certificate);
        let marks = connect(&options).unwrap();
        for node in 0..3 {
            let there = |id: &_| Cluster::first_owner(cluster.slot(&super::key(*id))) == node;
            let id = std::iter::repeat_with(random_id).find(there).unwrap();
            assert_eq!(marks.get(id).await, Ok(None), "{node}");
        }
        works_again(&*marks).await;
        assert_no_other_way_in(&options).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_the_masters_that_they_name_are_spoken_to_in_tls() {
    let (sentinels, certificate) = Sentinels::start_with_tls();
    let options = trusting(&sentinels.url, &certificate);
    let marks = connect(&options).unwrap();
    works_again(&*marks).await;
    assert_no_other_way_in(&options).await;
    sentinels.master.signal("KILL");
    works_again(&*marks).await;
    assert!(sentinels.replica.is_master());
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_and_a_password_are_used_and_their_lack_is_no_way_in() {
    let (server, certificate) = Redis::start_with_tls("geheim");
    let right = MarksOptions { password: Some("geheim".into()), ..trusting(&server.url, &certificate) };
    assert_eq!(get(right.clone()).await, Ok(None));
    let in_url = server.url.replace("://", "://default:geheim@");
    assert_eq!(get(MarksOptions { url: in_url, password: None, ..right.clone() }).await, Ok(None));
    let wrong = [
        MarksOptions { password: None, ..right.clone() },
        MarksOptions { password: Some("falsch".into()), ..right.clone() },
        MarksOptions { authorities: None, ..right.clone() },
        MarksOptions { url: server.url.replace("rediss", "redis"), ..right.clone() },
    ];
    for options in wrong {
        let told = get(options.clone()).await;
        let Err(Unavailable(reason)) = told else { panic!("{options:?}: {told:?}") };
        assert!(!reason.contains("geheim") && !reason.contains("falsch"), "{reason}");
    }
}
