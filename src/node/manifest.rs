//! `MANIFEST`: what the whole data directory agrees on. Small, text, replaced as a whole.
//!
//! ```text
//! thalweg manifest 1 crc32c 9a0b1c2d        format version; CRC-32C of every byte after this line
//! {"generation":1,"placement_seed":...,"logs":[...],"lineages":{...}}
//! ```
//!
//! Contract: [`Manifest::store`] returns once the new content is durable; a crash at any moment leaves the old file or the
//! new one. It writes `MANIFEST.new`, syncs it, renames it, syncs the directory. [`Manifest::load`] tells apart: absent,
//! readable, damaged, written by a newer version. The first line keeps its shape for ever, so that any version can refuse
//! a newer one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::limits;
use crate::shard::lineage::{Grant, Ledger, Span};

/// Version of the layout of the data directory, its manifest included.
pub const FORMAT_VERSION: u64 = 1;
/// Name of the file in the data directory.
pub const MANIFEST: &str = "MANIFEST";
const MANIFEST_NEW: &str = "MANIFEST.new";
const MAGIC: &str = "thalweg manifest";

/// Content of `MANIFEST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Number of the directory that holds the shards' logs; grows with each change of the shard count.
    pub generation: u64,
    /// Seed of the placement hash; never changes.
    pub placement_seed: u64,
    /// Id of each shard's log; their number is the number of shards. Never reused.
    pub log_ids: Vec<u64>,
    /// Lineage ids: what was granted, what was used.
    pub lineages: Ledger,
}

/// Why `MANIFEST` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Reading or writing failed.
    #[error("{MANIFEST}: {0}")]
    Io(#[from] io::Error),
    /// A later version wrote it.
    #[error("{MANIFEST} has format version {found}, this program reads up to {FORMAT_VERSION}")]
    Newer {
        /// Version in the file.
        found: u64,
    },
    /// The bytes are not what was written.
    #[error("{MANIFEST} is damaged: {0}")]
    Damaged(String),
}

impl Manifest {
    /// A manifest for an empty directory: random ids, one lineage grant for each shard.
    pub fn create(shards: usize) -> io::Result<Manifest> {
        let placement_seed = random_u64()?;
        let mut manifest =
            Manifest { generation: 1, placement_seed, log_ids: Vec::new(), lineages: Ledger::default() };
        manifest.renew_logs(shards)?;
        Ok(manifest)
    }

    /// Gives every one of `shards` shards a new log, with a lineage grant. Grants of earlier logs stay until a recovery
    /// has found out how far they were used.
    pub fn renew_logs(&mut self, shards: usize) -> io::Result<()> {
        assert!((1..=limits::SHARDS_MAX).contains(&shards), "{shards} shards");
        self.log_ids.clear();
        for _ in 0..shards {
            let log_id = random_u64()?;
            self.log_ids.push(log_id);
            let granted = self.lineages.grant(log_id);
            granted.ok_or_else(|| io::Error::other("lineage ids are used up"))?;
        }
        Ok(())
    }

    /// Number of shards that the directory is laid out for.
    pub fn shards(&self) -> usize {
        self.log_ids.len()
    }

    /// Reads the manifest of a data directory; `None` when there is none.
    pub fn load(data_dir: &Path) -> Result<Option<Manifest>, ManifestError> {
        match fs::read(data_dir.join(MANIFEST)) {
            Ok(bytes) => Manifest::parse(&bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes this the manifest of the data directory, durably.
    pub fn store(&self, data_dir: &Path) -> Result<(), ManifestError> {
        let aside = data_dir.join(MANIFEST_NEW);
        let mut file = File::create(&aside)?;
        file.write_all(&self.render())?;
        file.sync_all()?;
        fs::rename(&aside, data_dir.join(MANIFEST))?;
        File::open(data_dir)?.sync_all()?;
        Ok(())
    }

    fn render(&self) -> Vec<u8> {
        let grants: Vec<Value> = self
            .lineages
            .grants
            .iter()
            .map(|grant| {
                let Grant { log_id, span, next } = grant;
                json!({"log": log_id, "start": span.start, "end": span.end, "next": next})
            })
            .collect();
        let issued: Vec<Value> =
            self.lineages.issued.iter().map(|span| json!([span.start, span.end])).collect();
        let body = json!({
            "generation": self.generation,
            "placement_seed": self.placement_seed,
            "logs": self.log_ids,
            "lineages": {"ungranted": self.lineages.ungranted, "issued": issued, "grants": grants},
        });
        let body = format!("{body}\n");
        format!("{}\n{body}", first_line(&body)).into_bytes()
    }

    fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let damaged = |why: &str| ManifestError::Damaged(why.to_owned());
        let text = str::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
        let (head, body) = text.split_once('\n').ok_or_else(|| damaged("its first line is cut"))?;
        let version = head.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' '));
        let version = version.ok_or_else(|| damaged("its first line is not a manifest's"))?;
        let version = version.split(' ').next().and_then(|word| word.parse().ok());
        let found: u64 = version.ok_or_else(|| damaged("it has no version"))?;
        // Before anything else of the file is believed: a later version may have changed all of it.
        if found > FORMAT_VERSION {
            return Err(ManifestError::Newer { found });
        }
        if head != first_line(body) {
            return Err(damaged("its checksum does not match"));
        }
        let body: Value = serde_json::from_str(body).map_err(|error| damaged(&error.to_string()))?;
        let manifest = fields(&body).ok_or_else(|| damaged("a field is missing or has another type"))?;
        manifest.problem().map_or(Ok(manifest), |why| Err(ManifestError::Damaged(why)))
    }

    /// Says what is wrong with a manifest whose checksum is right: a fault of the program that wrote it.
    fn problem(&self) -> Option<String> {
        let shards = self.shards();
        if !(1..=limits::SHARDS_MAX).contains(&shards) {
            return Some(format!("it has {shards} logs"));
        }
        if self.generation == 0 {
            return Some("generation 0".to_owned());
        }
        for (shard, log_id) in self.log_ids.iter().enumerate() {
            let grants = self.lineages.grants.iter().filter(|grant| grant.log_id == *log_id).count();
            if self.log_ids[..shard].contains(log_id) || !(1..=2).contains(&grants) {
                return Some(format!(
                    "shard {shard}: log {log_id:016x} has {grants} grants, or is there twice"
                ));
            }
        }
        self.lineages.problem()
    }
}

/// First line of a manifest of this version, without its end.
fn first_line(body: &str) -> String {
    format!("{MAGIC} {FORMAT_VERSION} crc32c {:08x}", crc32c::crc32c(body.as_bytes()))
}

/// Reads the fields of a parsed body; `None` when one is missing or has another type.
fn fields(body: &Value) -> Option<Manifest> {
    let body = body.as_object()?;
    let number = |object: &Map<String, Value>, name: &str| object.get(name)?.as_u64();
    let lineages = body.get("lineages")?.as_object()?;
    let issued = lineages.get("issued")?.as_array()?.iter().map(|span| {
        let [start, end] = span.as_array()?.as_slice() else { return None };
        Some(Span { start: start.as_u64()?, end: end.as_u64()? })
    });
    let grants = lineages.get("grants")?.as_array()?.iter().map(|grant| {
        let grant = grant.as_object()?;
        let span = Span { start: number(grant, "start")?, end: number(grant, "end")? };
        Some(Grant { log_id: number(grant, "log")?, span, next: number(grant, "next")? })
    });
    Some(Manifest {
        generation: number(body, "generation")?,
        placement_seed: number(body, "placement_seed")?,
        log_ids: body.get("logs")?.as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?,
        lineages: Ledger {
            ungranted: number(lineages, "ungranted")?,
            issued: issued.collect::<Option<_>>()?,
            grants: grants.collect::<Option<_>>()?,
        },
    })
}

/// A random number that is not zero.
fn random_u64() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    loop {
        io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
        match u64::from_le_bytes(bytes) {
            0 => continue,
            number => return Ok(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let mut manifest = Manifest::create(3).unwrap();
        manifest.lineages.grants[1].next += 17;
        let log_ids = manifest.log_ids.clone();
        manifest.renew_logs(2).unwrap();
        assert!(log_ids.iter().all(|log_id| !manifest.log_ids.contains(log_id)), "ids are never reused");
        manifest.generation += 1;
        manifest.lineages.issued.push(Span { start: 1, end: manifest.lineages.grants.remove(0).span.end });
        manifest
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Manifest::load(dir.path()).unwrap().is_none());
        for manifest in
            [Manifest::create(1).unwrap(), sample(), Manifest::create(limits::SHARDS_MAX).unwrap()]
        {
            manifest.store(dir.path()).unwrap();
            assert_eq!(Manifest::load(dir.path()).unwrap(), Some(manifest));
        }
        assert!(!dir.path().join(MANIFEST_NEW).exists());
    }

    #[test]
    fn a_cut_write_of_the_next_one_leaves_the_present_one() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = sample();
        manifest.store(dir.path()).unwrap();
        fs::write(dir.path().join(MANIFEST_NEW), &manifest.render()[..40]).unwrap();
        assert_eq!(Manifest::load(dir.path()).unwrap(), Some(manifest.clone()));
        manifest.store(dir.path()).unwrap();
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = sample().render();
        for at in 0..bytes.len() {
            let cut = Manifest::parse(&bytes[..at]);
            assert!(matches!(cut, Err(ManifestError::Damaged(_))), "cut at {at}: {cut:?}");
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                // A flip in the version's digit may make it a newer one: refused as well.
                assert!(Manifest::parse(&flipped).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_newer_version_is_told_from_damage_whatever_follows() {
        for rest in ["", " crc32c 00000000", " sha256 abc def"] {
            let text = format!("{MAGIC} {}{rest}\n\u{1}not json", FORMAT_VERSION + 1);
            let result = Manifest::parse(text.as_bytes());
            assert!(matches!(result, Err(ManifestError::Newer { found: 2 })), "{result:?}");
        }
    }

    #[test]
    fn a_manifest_that_contradicts_itself_is_refused() {
        let table: [fn(&mut Manifest); 6] = [
            |manifest| manifest.log_ids.clear(),
            |manifest| manifest.log_ids[1] = manifest.log_ids[0],
            |manifest| manifest.lineages.grants.clear(),
            |manifest| manifest.lineages.ungranted -= 1,
            |manifest| manifest.lineages.grants[0].next = 0,
            |manifest| manifest.generation = 0,
        ];
        for (case, spoil) in table.iter().enumerate() {
            let mut manifest = sample();
            assert!(Manifest::parse(&manifest.render()).is_ok());
            spoil(&mut manifest);
            let result = Manifest::parse(&manifest.render());
            assert!(matches!(result, Err(ManifestError::Damaged(_))), "case {case}: {result:?}");
        }
    }
}
