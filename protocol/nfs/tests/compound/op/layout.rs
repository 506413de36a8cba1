//! The pNFS operations of a server without layouts: Getdeviceinfo,
//! Getdevicelist, Layoutcommit, Layoutget, Layoutreturn, Layouterror,
//! Layoutstats (RFC 8881 §18.40-§18.44, RFC 7862 §15.6, §15.7).

use zgate_test_harness::nfs::{Ops, sessions};
use zgate_nfs_wire::v4::op::Layoutget;
use zgate_nfs_wire::v4::op::layout::GetArgs;
use zgate_nfs_wire::v4::{Stateid, Status};

#[test]
fn layoutget_says_there_are_none() {
    sessions(|s| {
        let args = GetArgs {
            signal: false,
            layout_type: 1,
            io_mode: 1,
            offset: 0,
            length: 0,
            min_length: 0,
            stateid: Stateid::ANONYMOUS,
            max_bytes: 0,
        };
        s.c.check("no handle", Ops::new().op::<Layoutget>(&args), Status::Nofilehandle);
        let ops = Ops::new().at(&s.file).op::<Layoutget>(&args);
        s.c.check("no layouts", ops, Status::Layoutunavailable);
        s.c.check("cut short", Ops::new().at(&s.file).raw(50, &[0; 8]), Status::Badxdr);
    });
}

#[test]
fn the_others_are_not_supported() {
    sessions(|s| {
        for number in [47, 48, 49, 51] {
            let ops = Ops::new().at(&s.file).raw(number, &[0; 64]);
            s.c.check("no pNFS", ops, Status::Notsupp);
        }
        let later = if s.c.minor == 2 { Status::Notsupp } else { Status::OpIllegal };
        for number in [64, 65] {
            s.c.check("of minor version 2", Ops::new().at(&s.file).raw(number, &[0; 64]), later);
        }
    });
}
