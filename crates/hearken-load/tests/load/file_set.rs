//! The file set of SPECweb99.

use std::fs;
use std::path::Path;

use hearken_load::specweb::{create, directories_for};
use sha2::{Digest, Sha256};

fn sum(path: &Path) -> String {
    let digest = Sha256::digest(fs::read(path).unwrap());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn sizes_match_specweb99() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("new/set");
    let mut steps = Vec::new();
    let made = create(&dir, 2, &mut |directories| steps.push(directories)).unwrap();
    assert_eq!((made.written, made.existing, made.bytes), (72, 0, 2 * 5_119_484));
    assert_eq!(steps, [1, 2]);
    for (name, size) in [
        ("dir00000/class0_0", 102),
        ("dir00000/class0_8", 921),
        ("dir00001/class1_4", 5120),
        ("dir00001/class2_0", 10_240),
        ("dir00001/class3_8", 921_600),
    ] {
        let text = fs::read(dir.join(name)).unwrap();
        assert_eq!(text.len(), size, "{name}");
        assert!(text.iter().all(|byte| byte.is_ascii_graphic() || b" \n".contains(byte)));
    }
    // The contents never change, so that checksums stay valid.
    assert_eq!(sum(&dir.join("dir00001/class1_0")), SUM);
    assert_ne!(sum(&dir.join("dir00000/class1_0")), SUM);
}

const SUM: &str = "7ffcf85317a4a436c91237aa658cc997b8a6dbb3cc7514bcf964922a089531e5";

#[test]
fn completes_a_partial_file_set() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    create(dir, 1, &mut |_| ()).unwrap();
    let (short, gone) = (dir.join("dir00000/class2_3"), dir.join("dir00000/class0_1"));
    let before = (sum(&short), sum(&gone));
    fs::write(&short, "cut").unwrap();
    fs::remove_file(&gone).unwrap();
    let made = create(dir, 1, &mut |_| ()).unwrap();
    assert_eq!((made.written, made.existing), (2, 34));
    assert_eq!((sum(&short), sum(&gone)), before);
    let made = create(dir, 2, &mut |_| ()).unwrap();
    assert_eq!((made.written, made.existing), (36, 36));
    let made = create(dir, 2, &mut |_| ()).unwrap();
    assert_eq!((made.written, made.existing), (0, 72));
}

#[test]
fn rejects_invalid_arguments() {
    let dir = tempfile::tempdir().unwrap();
    for count in [0, 100_001] {
        assert!(create(dir.path(), count, &mut |_| ()).is_err(), "{count}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = create(&file, 1, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains(&*file.to_string_lossy()), "{error}");
}

#[test]
fn the_number_of_directories_matches_specweb99() {
    assert_eq!(directories_for(0), 25);
    assert_eq!(directories_for(1000), 680);
    assert!(directories_for(u32::MAX) > 1_000_000);
}
