use super::*;
use crate::iscsi::luns::zvol_identity::identity;
use std::sync::atomic::{AtomicUsize, Ordering};
use zgate_control::tool::Recorded;

const ASKED: &str = "zfs list -Hp -d 1 -t volume -o name,guid,volsize,volblocksize tank/vm";
const TOLD: &str = "tank/vm/a\t7\t1073741824\t16384\ntank/vm/b c\t8\t2147483648\t8192\n";

/// A directory with that of the pool `tank`.
fn pools() -> tempfile::TempDir {
    let pools = tempfile::tempdir().unwrap();
    std::fs::create_dir(pools.path().join("tank")).unwrap();
    pools
}

fn lun(path: &str) -> LunConfig {
    toml::from_str(&format!("number = 0\npath = {path:?}\n")).unwrap()
}

/// The logical unit of the zvol `tank/vm/a` that was found with this guid.
fn found(guid: u64) -> LunConfig {
    let (serial, naa) = identity(guid);
    LunConfig { serial: Some(serial), naa: Some(naa), ..lun("/dev/zvol/tank/vm/a") }
}

fn size(sizes: &ZvolSizes, lun: &LunConfig) -> Option<u64> {
    sizes.geometry(lun).map(|geometry| geometry.capacity_bytes)
}

#[test]
fn the_sizes_of_zvols_of_an_imported_pool_are_asked_for() {
    let (pools, tool) = (pools(), Arc::new(Recorded::default().then(ASKED, TOLD)));
    let sizes = ZvolSizes::with(Arc::<Recorded>::clone(&tool), pools.path().to_owned());
    // Nobody is asked about a pool that is not imported, or what is no zvol.
    for path in ["/dev/zvol/gone/vm/a", "/dev/zvol/tank", "/dev/sdx", "/srv/disk.img"] {
        assert_eq!(size(&sizes, &lun(path)), None, "{path}");
    }
    assert!(!tool.is_done());
    assert_eq!(size(&sizes, &lun("/dev/zvol/tank/vm/a")), Some(1 << 30));
    assert!(tool.is_done());
    // The same answer is for all.
    let other = sizes.geometry(&lun("/dev/zvol/tank/vm/b+c")).unwrap();
    assert_eq!((other.capacity_bytes, other.physical_block_bytes), (2 << 30, 8192));
    assert_eq!(size(&sizes, &lun("/dev/zvol/tank/vm/a-part1")), None);
}

#[test]
fn what_is_no_size_is_none() {
    let pools = pools();
    let size_of = |tool: Recorded| {
        let sizes = ZvolSizes::with(Arc::new(tool), pools.path().to_owned());
        size(&sizes, &lun("/dev/zvol/tank/vm/a"))
    };
    for values in ["7\t-\t-", "7\t1073741824", "7\t0\t16384", "7\t1073741824\t1", "", "garbage"] {
        let tool = Recorded::default().then(ASKED, &format!("tank/vm/a\t{values}\n"));
        assert_eq!(size_of(tool), None, "{values:?}");
    }
    assert_eq!(size_of(Recorded::default().then(ASKED, "")), None);
    assert_eq!(size_of(Recorded::default().then_fail(ASKED, 1, "dataset does not exist")), None);
}

#[test]
fn a_zvol_that_was_made_anew_has_its_new_size_and_not_for_the_unit_of_the_old_one() {
    let pools = pools();
    let answers = Recorded::default().then(ASKED, TOLD).then(ASKED, TOLD);
    let made_anew = "tank/vm/a\t9\t4294967296\t16384\n";
    let answers = answers.then(ASKED, made_anew).then(ASKED, made_anew).then(ASKED, made_anew);
    let mut sizes = ZvolSizes::with(Arc::new(answers), pools.path().to_owned());
    sizes.max_age = Duration::ZERO;
    let named = lun("/dev/zvol/tank/vm/a");
    assert_eq!([size(&sizes, &named), size(&sizes, &found(7))], [Some(1 << 30); 2]);
    assert_eq!(size(&sizes, &named), Some(4 << 30));
    assert_eq!([size(&sizes, &found(7)), size(&sizes, &found(9))], [None, Some(4 << 30)]);
}

#[test]
fn what_was_told_is_kept_for_the_path_while_the_unit_is_absent() {
    let (pools, tool) = (pools(), Recorded::default().then(ASKED, TOLD));
    let sizes = ZvolSizes::with(Arc::new(tool), pools.path().to_owned());
    let (one, other) = (identity(1).1, identity(2).1);
    let zvol = lun("/dev/zvol/tank/vm/a");
    assert!(!sizes.keep([one, other].into_iter()));
    sizes.ask(&zvol, one);
    assert_eq!(sizes.told(one, &zvol.path).unwrap().capacity_bytes, 1 << 30);
    assert_eq!(sizes.told(other, &zvol.path), None);
    assert_eq!(sizes.told(one, Path::new("/dev/zvol/tank/vm/b")), None, "it has another one now");
    assert!(sizes.keep([one, other].into_iter()));
    assert!(sizes.told(one, &zvol.path).is_some());
    assert!(!sizes.keep([other].into_iter()));
    assert_eq!(sizes.told(one, &zvol.path), None);
}

/// Does not answer in time. While it is asked, others ask about the same pool.
#[derive(Default)]
struct Hangs {
    sizes: std::sync::OnceLock<Arc<ZvolSizes>>,
    questions: AtomicUsize,
}

impl Tool for Hangs {
    fn run(&self, program: &str, _: &[&str]) -> Result<String, ToolError> {
        self.questions.fetch_add(1, Ordering::Relaxed);
        let sizes = self.sizes.get().unwrap();
        std::thread::scope(|scope| {
            for path in ["/dev/zvol/tank/vm/a", "/dev/zvol/tank/vm/b", "/dev/zvol/tank/other/a"] {
                scope.spawn(move || assert_eq!(size(sizes, &lun(path)), None, "{path}"));
            }
        });
        Err(ToolError::TimedOut { command: program.to_owned(), seconds: ZVOL_SIZES_SECONDS })
    }
}

#[test]
fn a_pool_that_hangs_is_asked_one_question_and_has_a_pause_then() {
    let (pools, tool) = (pools(), Arc::new(Hangs::default()));
    let mut sizes = ZvolSizes::with(Arc::<Hangs>::clone(&tool), pools.path().to_owned());
    sizes.patience = Duration::ZERO;
    sizes.max_age = Duration::ZERO;
    let sizes = Arc::new(sizes);
    assert!(tool.sizes.set(Arc::clone(&sizes)).is_ok());
    for path in ["/dev/zvol/tank/vm/a", "/dev/zvol/tank/vm/b", "/dev/zvol/tank/other/a"] {
        assert_eq!(size(&sizes, &lun(path)), None, "{path}");
    }
    assert_eq!(tool.questions.load(Ordering::Relaxed), 1);
    // It may be asked again.
    for of_pool in sizes.answers().values_mut() {
        assert!(!of_pool.is_asked);
        of_pool.paused_until = None;
    }
    assert_eq!(size(&sizes, &lun("/dev/zvol/tank/vm/a")), None);
    assert_eq!(tool.questions.load(Ordering::Relaxed), 2);
}
