use super::*;

const LLM: &str = include_str!("../../../../deploy/layouts/llm.toml");
const ZFAST: &str = include_str!("../../../../deploy/layouts/zfast.toml");

fn plan_of(text: &str) -> Result<Plan, Refused> {
    plan(&Layout::parse(text).unwrap(), false)
}

fn refused(text: &str) -> String {
    plan_of(text).unwrap_err().to_string()
}

#[test]
fn the_shipped_layouts_make_the_reviewed_plans() {
    let golden = [
        (LLM, include_str!("../../../../deploy/layouts/llm.plan")),
        (ZFAST, include_str!("../../../../deploy/layouts/zfast.plan")),
    ];
    for (layout, reviewed) in golden {
        let made = plan_of(layout).unwrap().to_string();
        assert_eq!(made, reviewed, "the plan changed: review it, then replace the file");
    }
}

#[test]
fn every_change_changes_the_hash() {
    let hash = |text: &str| plan_of(text).unwrap().hash;
    let before = hash(ZFAST);
    for (from, to) in [("ashift = 12", "ashift = 13"), ("R500001", "R500009"), ("\"1M\"", "\"2M\"")]
    {
        assert_ne!(hash(&ZFAST.replacen(from, to, 1)), before, "{from}");
    }
    // A size that no command contains is part of the hash, too.
    assert_ne!(hash(&ZFAST.replace("3840755982336", "3840755986432")), before);
    assert_eq!(hash(&ZFAST.replace("# Training sets", "# Sets")), before);
}

#[test]
fn what_is_ambiguous_is_refused() {
    let hdd0 = "size = 18000207937536\nsector_bytes = 4096\n\n[[device]]\nname = \"hdd1\"";
    let cases = [
        ("/dev/disk/by-id/ata-ST18000NM000J-2TV103_ZR500001", "/dev/sda", "by-id"),
        ("_ZR500001", "_ZR500001-part1", "is a partition"),
        ("_ZR500001", "_ZR500002", "already"),
        (
            hdd0,
            &hdd0.replacen("18000207937536", "16000900661248", 1),
            "has 18000207937536: ZFS only uses the size of the smallest",
        ),
        (hdd0, &hdd0.replacen("4096", "512", 1), "sectors of"),
        ("\"hdd0\", \"hdd1\"", "\"hdd0\", \"hdd0\"", "used in vdev 1 already"),
        ("\"hdd0\", \"hdd1\"", "\"hdd0\", \"hdd9\"", "there is no device or partition hdd9"),
        ("\"hdd0\", \"hdd1\"", "\"hdd0\"", "at least 2"),
        (
            "\"nvme0.special\", \"nvme1.special\"",
            "\"nvme0.special\", \"nvme0.slog\"",
            "on one device",
        ),
        (
            "type = \"mirror\"\ndevices = [\"nvme0.special\"",
            "type = \"stripe\"\ndevices = [\"nvme0.special\"",
            "the pool is lost with it",
        ),
        (
            "type = \"stripe\"\ndevices = [\"nvme0.l2arc\"",
            "type = \"mirror\"\ndevices = [\"nvme0.l2arc\"",
            "cannot be of this type",
        ),
        ("\"600GiB\"", "\"1800GiB\"", "does not fit"),
        ("\"32GiB\"", "\"32GB\"", "not a multiple of 1 MiB"),
        ("size = \"32GiB\"", "size = \"rest\"", "only the last partition"),
        (
            "\"nvme0.l2arc\", \"nvme1.l2arc\"",
            "\"nvme0.l2arc\"",
            "nvme1.l2arc is described but not used",
        ),
        ("ashift = 12", "ashift = 9", "sectors of 4096"),
        ("ashift = 12", "autoexpand = \"on\"", "ashift is missing"),
        ("special_small_blocks = 0", "recordsize = \"1M\"", "from OpenZFS 2.4 on"),
        ("recordsize = \"128K\"", "recordsize = \"32K\"", "all its data would go"),
        ("sparse = false\n", "", "sparse is missing"),
        ("volblocksize = \"16K\", ", "", "volblocksize is missing"),
        ("\"2TiB\"", "\"40TiB\"", "make volumes sparse or smaller"),
        ("name = \"vm\"\n", "name = \"vms\"\n", "its parent vm is not described"),
        ("name = \"tmp\"", "name = \"backup\"", "the name is used twice"),
        ("name = \"tmp\"", "name = \"-tmp@x\"", "dataset -tmp@x: name"),
        ("logbias = \"throughput\"", "logbias = \"fast\"", "logbias = fast: must be"),
        ("name = \"llm\"", "name = \"mirror\"", "vdev type"),
        ("mountpoint = \"/llm\"", "mountpoint = \"llm\"", "must be absolute"),
    ];
    for (from, to, reason) in cases {
        assert!(LLM.contains(from), "{from}");
        let said = refused(&LLM.replacen(from, to, 1));
        assert!(said.contains(reason), "{to}: {said}");
    }
}

#[test]
fn unknown_keys_name_their_line() {
    let error = Layout::parse(&LLM.replacen("sector_bytes", "sectors", 1)).unwrap_err();
    assert!(error.starts_with("line ") && error.contains("unknown field `sectors`"), "{error}");
    assert!(Layout::parse(&LLM.replacen("600GiB", "600G", 1)).unwrap_err().contains("ambiguous"));
}

#[test]
fn data_without_redundancy_has_to_be_meant() {
    let text = ZFAST.replace("type = \"mirror\"", "type = \"stripe\"");
    assert!(refused(&text).contains("no redundancy"));
    let meant = text.replacen("name = \"zfast\"", "name = \"zfast\"\nredundancy = \"none\"", 1);
    let line = plan_of(&meant).unwrap().steps[0].line();
    assert!(!line.contains("mirror"), "{line}");
}

#[test]
fn files_take_the_place_of_disks() {
    let text = LLM.replace("/dev/disk/by-id/", "/scratch/");
    assert!(refused(&text).contains("by-id"));
    let plan = plan(&Layout::parse(&text).unwrap(), true).unwrap();
    assert!(plan.steps[0].line().starts_with("truncate --size 644245094400 /scratch/nvme-"));
    assert!(!plan.to_string().contains("parted"));
    assert!(super::plan(&Layout::parse(LLM).unwrap(), true).is_err());
}
