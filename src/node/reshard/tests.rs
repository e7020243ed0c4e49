use std::collections::BTreeMap;
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// A directory of two shards, the first of which has inherited a log, as two lists of segments that are all sealed.
struct Fixture {
    dir: TempDir,
    manifest: Manifest,
    retired: Vec<Retired>,
}

/// Stands for a segment: what matters here is that its bytes are found again.
fn content(listed: &Listed) -> Vec<u8> {
    format!("segment {} of {}", listed.number, listed.log_id).into_bytes()
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::create(2).unwrap();
        manifest.generation = 4;
        let own = |number, shard: usize| Listed::own(number, manifest.log_ids[shard]);
        let lists = [
            vec![(Listed::inherited(9, 3, HashRange::ALL), 1), (own(1, 0), 50), (own(2, 0), 60)],
            vec![(own(1, 1), 7)],
        ];
        let retired: Vec<Retired> =
            lists.into_iter().map(|segments| Retired { segments, lineage: 17, torn: None }).collect();
        for (shard, retired) in retired.iter().enumerate() {
            let shard_dir = shard_dir(dir.path(), 4, shard);
            data_dir::create_dirs(&shard_dir).unwrap();
            for (listed, _) in &retired.segments {
                fs::write(shard_dir.join(&listed.name), content(listed)).unwrap();
            }
        }
        manifest.store(dir.path()).unwrap();
        Fixture { dir, manifest, retired }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn loaded(&self) -> Manifest {
        Manifest::load(self.path()).unwrap().expect("there is always one")
    }

    /// Both steps of a change, the files' part.
    fn attempt(&self, pace: &mut Pace<'_>) -> Result<(), String> {
        let to =
            switch(self.path(), &self.manifest, 3, &self.retired, pace).map_err(|error| error.to_string())?;
        remove(self.path(), to.generation, pace).map_err(|failure| failure.message)
    }

    /// The names and the content of everything that counts.
    fn files(&self, generation: u64) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        for shard in fs::read_dir(generation_dir(self.path(), generation)).unwrap() {
            for file in fs::read_dir(shard.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                files.insert(path.clone(), fs::read(path).unwrap());
            }
        }
        files
    }

    fn generations(&self) -> (Vec<u64>, Vec<u64>) {
        data_dir::generations(self.path()).unwrap()
    }

    fn check_changed(&self) {
        assert_eq!((self.loaded().generation, self.loaded().shards()), (5, 3));
        assert_eq!(self.loaded().placement_seed, self.manifest.placement_seed);
        let [log_0, log_1] = self.manifest.log_ids[..] else { panic!("two shards") };
        let (first, second) = (owned(0, 2), owned(1, 2));
        let of_0 = [(9, 3), (1, log_0), (2, log_0)];
        let of_0 = of_0.map(|(number, log_id)| Listed::inherited(number, log_id, first));
        let of_1 = [Listed::inherited(1, log_1, second)];
        // The log of shard 1 begins between the two that shard 0 lists.
        let both = [of_0[0].clone(), of_1[0].clone(), of_0[1].clone(), of_0[2].clone()];
        let mut expected = BTreeMap::new();
        for (shard, segments) in [&of_0[..], &both[..], &of_1[..]].into_iter().enumerate() {
            let shard_dir = shard_dir(self.path(), 5, shard);
            for listed in segments {
                expected.insert(shard_dir.join(&listed.name), content(listed));
            }
            let list = SegmentList { segments: segments.to_vec(), lineage: 17 };
            expected.insert(shard_dir.join(file_name::LIST), list.encode());
        }
        assert_eq!(self.files(5), expected);
    }
}

#[test]
fn an_attempt_that_ends_at_any_step_leaves_one_generation_whole() {
    let mut steps = 0;
    let mut before_the_switch = 0;
    let mut renamed_seen = false;
    loop {
        let fixture = Fixture::new();
        let old = fixture.files(4);
        let mut left = steps;
        let mut pace = || match left {
            0 => Err(io::Error::other("a crash")),
            _ => {
                left -= 1;
                Ok(())
            }
        };
        let ended = fixture.attempt(&mut pace);
        let case = format!("after {steps} steps: {ended:?}");
        if fixture.loaded() == fixture.manifest {
            before_the_switch += 1;
            assert!(fixture.files(4) == old, "{case}");
            // The next start, with the number as it was.
            remove_others(fixture.path(), 4).expect(&case);
            assert_eq!(fixture.generations(), (vec![4], vec![]), "{case}");
            assert!(fixture.files(4) == old, "{case}");
            // And the one after that.
            fixture.attempt(&mut || Ok(())).expect(&case);
        }
        if fixture.generations() == (vec![5], vec![4]) {
            let renamed = removed_dir(fixture.path(), 4).join("shard-000");
            let files = fs::read_dir(renamed).expect("it is renamed as a whole, before anything of it goes");
            assert_eq!(files.count(), fixture.retired[0].segments.len(), "{case}");
            renamed_seen = true;
        }
        remove_others(fixture.path(), 5).expect(&case);
        assert_eq!(fixture.generations(), (vec![5], vec![]), "{case}");
        fixture.check_changed();
        if ended.is_ok() {
            break;
        }
        steps += 1;
    }
    // Three directories, eight links, three lists, the switch; then the renaming, the removal.
    assert_eq!((before_the_switch, steps), (15, 17));
    assert!(renamed_seen);
}

#[test]
fn links_are_links() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::new();
    switch(fixture.path(), &fixture.manifest, 3, &fixture.retired, &mut || Ok(())).unwrap();
    let (listed, _) = &fixture.retired[1].segments[0];
    let there = fs::metadata(shard_dir(fixture.path(), 4, 1).join(&listed.name)).unwrap();
    assert_eq!(there.nlink(), 3, "one for its own shard, and for each of the two that overlap with it");
}

#[test]
fn what_is_in_the_way_is_named() {
    let fixture = Fixture::new();
    data_dir::create_dirs(&generation_dir(fixture.path(), 5)).unwrap();
    let error = fixture.attempt(&mut || Ok(())).expect_err("in the way");
    assert!(error.contains("generation-000005"), "{error}");
    assert_eq!(fixture.loaded(), fixture.manifest);
}

#[test]
fn only_what_was_never_in_use_is_removed_as_a_leftover() {
    let fixture = Fixture::new();
    let newer = shard_dir(fixture.path(), 6, 0);
    data_dir::create_dirs(&newer).unwrap();
    for name in ["generation-seven", "generation-", "generation", "backup-000001"] {
        fs::create_dir(fixture.path().join(name)).unwrap();
    }
    fs::write(newer.join(file_name::inherited_segment(1, 7)), b"").unwrap();
    fs::write(newer.join(file_name::segment(1)), b"").unwrap();
    let refused = remove_others(fixture.path(), 4).expect_err("a newer generation has been in use");
    assert_eq!(refused.code, Exit::Damaged.code());
    assert!(refused.message.contains("generation-000006"), "{refused}");
    assert!(newer.join(file_name::segment(1)).exists());
    fs::remove_file(newer.join(file_name::segment(1))).unwrap();
    data_dir::create_dirs(&removed_dir(fixture.path(), 6).join("shard-000")).unwrap();
    data_dir::create_dirs(&removed_dir(fixture.path(), 1).join("shard-000")).unwrap();
    remove_others(fixture.path(), 4).unwrap();
    assert_eq!(fixture.generations(), (vec![4], vec![]));
    assert!(fixture.path().join("generation-seven").exists(), "not ours");
}

#[test]
fn a_change_needs_room_for_the_first_segments() {
    let fixture = Fixture::new();
    let Err(refused) = change(fixture.path(), &fixture.manifest, 3, 1 << 60) else {
        panic!("so much is free?")
    };
    assert_eq!(refused.code, Exit::DataDir.code());
    assert!(
        refused.message.contains("are free") && refused.message.contains("2 shards still work"),
        "{refused}"
    );
    assert_eq!((fixture.loaded(), fixture.generations()), (fixture.manifest.clone(), (vec![4], vec![])));
}

#[test]
fn a_directory_without_anything_in_it_changes_too() {
    let dir = tempfile::tempdir().unwrap();
    data_dir::prove_direct_io(dir.path()).unwrap();
    let manifest = Manifest::create(2).unwrap();
    for shard in 0..2 {
        data_dir::create_dirs(&shard_dir(dir.path(), 1, shard)).unwrap();
    }
    manifest.store(dir.path()).unwrap();
    let changed = change(dir.path(), &manifest, 4, 1 << 20).unwrap();
    assert_eq!((changed.manifest.generation, changed.manifest.shards(), changed.notes), (2, 4, vec![]));
    assert_eq!(Manifest::load(dir.path()).unwrap(), Some(changed.manifest));
    assert_eq!(data_dir::generations(dir.path()).unwrap(), (vec![2], vec![]));
    for shard in 0..4 {
        let list = fs::read(shard_dir(dir.path(), 2, shard).join(file_name::LIST)).unwrap();
        assert_eq!(SegmentList::parse(&list, "list").unwrap(), SegmentList::default());
    }
}

/// A segment that a log of a history wrote: its log and number.
type Leaf = (u64, u32);

/// What the files of a history hold: segments that were written, each for a part of the hashes.
#[derive(Default)]
struct Past {
    contents: BTreeMap<Leaf, Vec<(Leaf, HashRange)>>,
    /// Every segment that got a commit, with what its shard owned, in the order of writing.
    written: Vec<(Leaf, HashRange)>,
}

impl Past {
    /// What a shard replays of its list for the hashes that begin with `upper`.
    fn replayed(&self, list: &[(Listed, u64)], upper: u64) -> Vec<Leaf> {
        let holds = |range: &HashRange| range.contains(upper << 32);
        let listed = list.iter().filter(|(listed, _)| holds(&listed.hashes));
        let leaves = listed.flat_map(|(listed, _)| &self.contents[&(listed.log_id, listed.number)]);
        leaves.filter(|(_, range)| holds(range)).map(|(leaf, _)| *leaf).collect()
    }

    /// The first `count` segments of a list, as settling would rewrite them.
    fn settle(&mut self, list: &mut Vec<(Listed, u64)>, count: usize, leaf: Leaf) {
        let inputs: Vec<(Listed, u64)> = list.drain(..count).collect();
        let parts = inputs.iter().flat_map(|(listed, _)| {
            let within =
                |(leaf, range): &(Leaf, HashRange)| Some((*leaf, range.intersection(listed.hashes)?));
            self.contents[&(listed.log_id, listed.number)].iter().filter_map(within)
        });
        let parts = parts.collect();
        self.contents.insert(leaf, parts);
        list.insert(0, (Listed::own(leaf.1, leaf.0), inputs[0].1));
    }
}

proptest! {
    /// Whatever the numbers of shards were, however unevenly their logs grew, and whatever each shard rewrote of what it had
    /// inherited: a shard finds everything that ever was written to its streams, once and in order.
    #[test]
    fn a_shard_inherits_all_that_it_owns_in_order(
        counts in prop::collection::vec(1usize..=7, 2..7),
        growth in prop::collection::vec(0u64..5, 64),
        rewrites in prop::collection::vec(0usize..6, 32),
    ) {
        let (mut growth, mut rewrites) = (growth.into_iter().cycle(), rewrites.into_iter().cycle());
        let mut past = Past::default();
        let mut retired: Vec<Retired> = Vec::new();
        let mut log_id = 1000;
        for shards in counts {
            let mut next = Vec::new();
            let before = past.written.clone();
            for shard in 0..shards {
                let owned = owned(shard, shards);
                let first_lsn = |old: usize, listed: &Listed| {
                    let is_it = |other: &Listed| (other.log_id, other.number) == (listed.log_id, listed.number);
                    retired[old].segments.iter().find(|(other, _)| is_it(other)).expect("it is listed there").1
                };
                let mut segments: Vec<(Listed, u64)> = inherited(shard, shards, &retired)
                    .into_iter()
                    .map(|(old, listed)| (listed.clone(), first_lsn(old, &listed)))
                    .collect();
                check_heritage(&past, &before, &segments, owned);
                // Ids come in no order: they are random numbers.
                log_id = log_id * 7919 % 1_000_003;
                let olds = retired.iter().enumerate();
                let olds = olds.filter(|(old, _)| owned.intersection(super::owned(*old, retired.len())).is_some());
                let mut lsn = 1 + olds.map(|(_, retired)| retired.lineage).max().unwrap_or(0);
                let count = growth.next().expect("endless");
                for number in 1..=count as u32 {
                    let leaf = (log_id, number);
                    past.contents.insert(leaf, vec![(leaf, HashRange::ALL)]);
                    segments.push((Listed::own(number, log_id), lsn));
                    // A segment may have got no commit before the end.
                    let commits = growth.next().expect("endless");
                    lsn += commits;
                    if commits > 0 {
                        past.written.push((leaf, owned));
                    }
                }
                let rewritten = rewrites.next().expect("endless").min(segments.len());
                if rewritten > 0 {
                    past.settle(&mut segments, rewritten, (log_id, 100));
                }
                // The lineage stands for the last sequence number here.
                next.push(Retired { segments, lineage: lsn - 1, torn: None });
            }
            retired = next;
        }
    }
}

fn check_heritage(past: &Past, before: &[(Leaf, HashRange)], list: &[(Listed, u64)], owned: HashRange) {
    // Where ranges begin, everything changes that can change.
    let begins = before.iter().map(|(_, range)| range.start).chain([owned.start]);
    for upper in begins.filter(|upper| owned.contains(upper << 32)) {
        let expected: Vec<Leaf> =
            before.iter().filter(|(_, range)| range.contains(upper << 32)).map(|(leaf, _)| *leaf).collect();
        let mut replayed = past.replayed(list, upper);
        // One without commits may stand anywhere, and logs of other streams may stand between.
        replayed.retain(|leaf| expected.contains(leaf));
        assert_eq!(replayed, expected, "hashes from {upper} in {list:?}");
    }
}
