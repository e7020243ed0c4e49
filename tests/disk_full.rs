//! A full disk: a small file system of its own, on a loop device. Needs root; elsewhere it says so and checks nothing.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{OCTETS, Server, TEXT};

/// Bytes of the file system: a few segments.
const DISK_BYTES: u64 = 48 << 20;
const FLAGS: [&str; 4] = ["--shards", "1", "--segment-bytes", "4194304"];

/// A mounted file system that vanishes with the value.
struct Disk {
    dir: tempfile::TempDir,
}

impl Disk {
    /// Mounts one, or says why it cannot.
    fn mount() -> Result<Disk, String> {
        let parent = env!("CARGO_TARGET_TMPDIR");
        let dir = tempfile::Builder::new()
            .prefix("disk-")
            .tempdir_in(parent)
            .expect("a directory beside the build");
        let image = dir.path().join("image");
        let file = std::fs::File::create(&image).expect("a file can be made");
        file.set_len(DISK_BYTES).expect("a sparse file takes no space");
        let disk = Disk { dir };
        std::fs::create_dir(disk.path()).expect("a directory can be made");
        run(Command::new("mkfs.ext4").arg("-q").arg("-F").arg("-m").arg("0").arg(&image))?;
        run(Command::new("mount").arg("-o").arg("loop").arg(&image).arg(disk.path()))?;
        Ok(disk)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a server that the test has not waited for may still be closing its files.
        let _ = run(Command::new("umount").arg("--lazy").arg(self.path()));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn start(disk: &Path) -> Server {
    let mut command = Server::command();
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(FLAGS).arg("--data-dir").arg(disk.join("data"));
    Server::spawn(&mut command).unwrap_or_else(|ended| panic!("{ended:?}"))
}

#[test]
fn a_full_disk_is_met_before_it_happens() {
    let disk = match Disk::mount() {
        Ok(disk) => disk,
        Err(why) => {
            println!("NOT CHECKED, no loop device can be mounted here: {why}");
            return;
        }
    };
    let server = start(&disk.path());
    let large = server.create("large", OCTETS);
    let small = server.create("small", TEXT);
    small.append("before");
    let mut connection = server.connect();
    let mut appended = 0usize;
    let body = |n: usize| vec![(n % 251) as u8; 100_000];
    let refused = loop {
        let answer = connection.send(&large.post(body(appended)));
        if answer.status != 204 {
            break answer;
        }
        appended += 1;
        assert!(appended as u64 * 100_000 < DISK_BYTES, "more was acknowledged than the disk holds");
    };
    refused.expect_error(507, "DISK_FULL");
    assert!(appended > 100, "only {appended} appends found room");
    // Refused is refused: nothing of it is there. What was acknowledged is, and reads go on.
    let content: Vec<u8> = (0..appended).flat_map(body).collect();
    assert!(large.read() == content, "the bytes differ");
    for _ in 0..20 {
        large.post(body(0)).send().expect_error(507, "DISK_FULL");
    }
    assert_eq!(small.read_text(), "before");
    // Deletes have a reserve.
    let gone = small.path.clone();
    small.delete();
    server.stream(&gone, TEXT).request("HEAD").expect(404);
    server.kill();
    // It starts again without any space, and knows everything.
    let server = start(&disk.path());
    let large = server.stream("/test/large", OCTETS);
    assert!(large.read() == content, "the bytes differ after a restart");
    server.stream(&gone, TEXT).request("HEAD").expect(404);
    let status = large.post("x").send().status;
    assert!(status == 204 || status == 507, "{status}");
    large.delete();
    server.stop();
    let server = start(&disk.path());
    server.stream("/test/large", OCTETS).request("HEAD").expect(404);
}
