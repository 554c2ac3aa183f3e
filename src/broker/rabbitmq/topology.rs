//! Exchanges and queues, looked for and made.
//!
//! A question about what is not there closes the channel that it was asked on, so each has its own. What exists is
//! taken as it is: it may have been made otherwise on purpose, and to declare it again would be an error.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, Error, ErrorKind, ExchangeKind};

use super::{Declared, QueueKind, RabbitMqOptions, Routing, Topology};

/// Looks for what has to be there, and makes what is to be made.
pub(super) async fn prepare(connection: &Connection, options: &RabbitMqOptions) -> Result<(), Error> {
    let exchange = options.exchange.as_str();
    match &options.topology {
        Topology::Given => Ok(()),
        Topology::Verify if exchange.is_empty() => Ok(()),
        Topology::Verify => find_exchange(connection, exchange).await,
        Topology::Declare(declared) => declare(connection, exchange, declared).await,
    }
}

async fn declare(connection: &Connection, exchange: &str, declared: &Declared) -> Result<(), Error> {
    if !exchange.is_empty() {
        match find_exchange(connection, exchange).await {
            Err(error) if is_missing(&error) => make_exchange(connection, exchange, declared.exchange).await?,
            found => found?,
        }
    }
    for binding in &declared.bindings {
        bound(connection, exchange, declared.queues, &binding.queue, &binding.routing_key).await?;
    }
    Ok(())
}

/// Looks for the queue that a subscriber takes messages from, or makes it, with what `key` says of the exchange.
pub(super) async fn source(
    connection: &Connection,
    options: &RabbitMqOptions,
    queue: &str,
    key: &str,
) -> Result<(), Error> {
    match &options.topology {
        Topology::Given => Ok(()),
        Topology::Verify => find_queue(connection, queue).await,
        Topology::Declare(declared) => bound(connection, &options.exchange, declared.queues, queue, key).await,
    }
}

/// Makes a queue where there is none of that name, and has it get what `key` says of the exchange.
async fn bound(
    connection: &Connection,
    exchange: &str,
    kind: QueueKind,
    name: &str,
    routing_key: &str,
) -> Result<(), Error> {
    queue(connection, name, kind).await?;
    if exchange.is_empty() {
        return Ok(());
    }
    let channel = connection.create_channel().await?;
    let (options, arguments) = (QueueBindOptions::default(), FieldTable::default());
    channel.queue_bind(name.into(), exchange.into(), routing_key.into(), options, arguments).await?;
    channel.close(200, "done".into()).await
}

async fn find_exchange(connection: &Connection, exchange: &str) -> Result<(), Error> {
    let channel = connection.create_channel().await?;
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(exchange.into(), ExchangeKind::Topic, options, FieldTable::default()).await?;
    channel.close(200, "done".into()).await
}

async fn make_exchange(connection: &Connection, exchange: &str, routing: Routing) -> Result<(), Error> {
    let kind = match routing {
        Routing::Topic => ExchangeKind::Topic,
        Routing::Direct => ExchangeKind::Direct,
        Routing::Fanout => ExchangeKind::Fanout,
        Routing::Headers => ExchangeKind::Headers,
    };
    let channel = connection.create_channel().await?;
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(exchange.into(), kind, options, FieldTable::default()).await?;
    channel.close(200, "done".into()).await
}

/// Makes a queue where there is none of that name, durable.
pub(super) async fn queue(connection: &Connection, name: &str, kind: QueueKind) -> Result<(), Error> {
    match find_queue(connection, name).await {
        Err(error) if is_missing(&error) => {
            let mut arguments = FieldTable::default();
            let kind = match kind {
                QueueKind::Quorum => "quorum",
                QueueKind::Classic => "classic",
            };
            arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
            let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            declare_queue(connection, name, durable, arguments).await
        }
        found => found,
    }
}

async fn find_queue(connection: &Connection, name: &str) -> Result<(), Error> {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    declare_queue(connection, name, passive, FieldTable::default()).await
}

async fn declare_queue(
    connection: &Connection,
    name: &str,
    options: QueueDeclareOptions,
    arguments: FieldTable,
) -> Result<(), Error> {
    let channel = connection.create_channel().await?;
    channel.queue_declare(name.into(), options, arguments).await?;
    channel.close(200, "done".into()).await
}

/// Whether the broker said that there is no such thing.
fn is_missing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error)
        if matches!(error.kind(), AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND)))
}
