//! One core of the server. (The mailbox protocol stands; the shard itself is a stub that starts and stops.)

pub mod mail;

/// A shard that cannot go on: what is wrong, and the exit code of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardFailure {
    /// Names the file and what is wrong with it.
    pub message: String,
    /// Exit code of the process (`node::exit::Exit`).
    pub code: u8,
}

/// Runs one shard to its end: recovery, serving, stop.
pub async fn run(start: mail::ShardStart) -> Result<(), ShardFailure> {
    let mail::ShardStart { shard, inbox, reports, .. } = start;
    let recovered =
        mail::Report::Recovered { shard, streams: 0, records: 0, buckets: Vec::new(), torn_bytes: 0 };
    let _ = reports.send(recovered);
    while let Ok(mail) = inbox.recv().await {
        match mail {
            mail::Mail::Begin { .. } => drop(reports.send(mail::Report::Serving { shard })),
            mail::Mail::Stop => break,
            _ => {}
        }
    }
    Ok(())
}
