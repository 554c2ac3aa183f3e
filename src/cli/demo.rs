//! `oncegate demo`.

use std::net::SocketAddr;

use clap::Args;
use oncegate::demo::{self, DemoError, DemoOptions};
use oncegate::telemetry;

use super::Failure;
use super::out::say;
use super::serve::{StopSignals, block_on};

#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Where the gateway listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where it answers operators: the console. On this machine only, since nobody has to sign in.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    admin_listen: SocketAddr,
    /// Where the payments service behind it listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    upstream_listen: SocketAddr,
    /// Ends when the story has been told.
    #[arg(long)]
    once: bool,
}

impl Demo {
    pub(super) fn run(self) -> Result<(), Failure> {
        telemetry::init_quietly();
        block_on(self.show())
    }

    async fn show(self) -> Result<(), Failure> {
        let mut signals = StopSignals::listen()?;
        let options = DemoOptions { gateway: self.listen, admin: self.admin_listen, upstream: self.upstream_listen };
        let demo = demo::Demo::start(options).await.map_err(failed)?;
        say!("\nA payments service that executes whatever it is sent, and Oncegate in front of it:\n");
        tokio::select! {
            told = demo::tell(demo.gateway, |line| say!("{line}")) => told.map_err(failed)?,
            () = signals.next() => {
                demo.stop().await;
                return Ok(());
            }
        }
        if !self.once {
            say!(
                "\nTry it yourself, in a browser: http://{0}/demo\nwith what operators see beside it: http://{1}/console\n\
                 or in another terminal:\n{2}\nCtrl-C ends the demo.",
                demo.gateway,
                demo.admin,
                demo::invitation(demo.gateway)
            );
            signals.next().await;
        }
        demo.stop().await;
        Ok(())
    }
}

fn failed(error: DemoError) -> Failure {
    Failure::Failed(error.to_string())
}
