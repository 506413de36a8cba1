//! Attempts that fail, hang and succeed.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A time that no test reaches.
const LONG: Duration = Duration::from_secs(60);

fn job(
    key: &str,
    begins: bool,
    work: impl FnOnce() -> Result<u8, Fault> + Send + 'static,
) -> Job<u8> {
    Job { key: key.to_owned(), work: Box::new(work), begins }
}

fn missing() -> Fault {
    Fault::absent("missing".to_owned(), "create it")
}

/// A job that hangs until the sender is used or dropped; it reports its begin.
fn hanging(key: &str) -> (Job<u8>, Sender<u8>, Receiver<()>) {
    let (answers, asked) = channel();
    let (begins, begun) = channel();
    let work = move || {
        let _ = begins.send(());
        asked.recv().map_err(|_| missing())
    };
    (job(key, true, work), answers, begun)
}

#[test]
fn all_results_are_returned_in_order() {
    let attempts = Attempts::new(Wake::default());
    let jobs = vec![
        job("a", true, || Ok(1)),
        job("b", true, || Err(missing())),
        job("c", true, || panic!("a test")),
        job("d", false, || Ok(4)),
    ];
    let results = attempts.attempt(jobs, LONG);
    assert_eq!(results[..2], [Ok(1), Err(missing())]);
    assert!(results[2].as_ref().unwrap_err().reason.contains("panicked"));
    assert_eq!(results[3], Err(Fault::unknown()), "not begun");
}

#[test]
fn one_that_hangs_delays_neither_others_nor_the_next_call_and_is_used_when_it_ends() {
    let wake = Wake::default();
    let attempts = Attempts::new(wake.clone());
    let (hung, answers, begun) = hanging("hung");
    let results = attempts.attempt(vec![job("a", true, || Ok(1)), hung], Duration::from_millis(50));
    assert_eq!(results[0], Ok(1));
    assert!(results[1].as_ref().unwrap_err().reason.contains("no answer"));
    begun.recv().unwrap();
    // A second attempt does not begin, and this call does not wait.
    let second = job("hung", true, || panic!("one attempt at a time"));
    assert!(attempts.attempt(vec![second], LONG)[0].is_err());
    wake.wait(Some(Duration::ZERO));
    answers.send(7).unwrap();
    wake.wait(Some(LONG));
    let again = || vec![job("hung", false, || panic!("its result is there"))];
    assert!(attempts.retry(again()).news);
    assert_eq!(attempts.attempt(again(), LONG), [Ok(7)]);
}

#[test]
fn an_unwanted_result_is_dropped() {
    let wake = Wake::default();
    let attempts = Attempts::new(wake.clone());
    let (hung, answers, begun) = hanging("removed");
    assert!(attempts.attempt(vec![hung], Duration::ZERO)[0].is_err());
    begun.recv().unwrap();
    assert_eq!(attempts.retry(Vec::new()), Progress::default());
    answers.send(7).unwrap();
    wake.wait(Some(LONG));
    let again = attempts.attempt(vec![job("removed", false, || Ok(8))], LONG);
    assert_eq!(again, [Err(Fault::unknown())]);
}

#[test]
fn what_somebody_waits_for_is_not_forgotten() {
    let attempts = Attempts::new(Wake::default());
    let (hung, answers, begun) = hanging("new");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| attempts.attempt_more(vec![hung], LONG));
        begun.recv().unwrap();
        // The thread that retries was woken, and has other items or none.
        assert_eq!(attempts.retry(Vec::new()), Progress::default());
        assert_eq!(attempts.attempt(vec![job("other", true, || Ok(1))], LONG), [Ok(1)]);
        answers.send(7).unwrap();
        assert_eq!(waiter.join().unwrap(), [Ok(7)]);
    });
    assert_eq!(attempts.retry(Vec::new()), Progress::default());
    assert!(attempts.table().0.is_empty(), "nobody waits any more");
}

#[test]
fn further_items_end_no_other() {
    let wake = Wake::default();
    let attempts = Attempts::new(wake.clone());
    let (hung, answers, begun) = hanging("absent");
    assert!(attempts.attempt(vec![hung], Duration::ZERO)[0].is_err());
    begun.recv().unwrap();
    assert_eq!(attempts.attempt_more(vec![job("new", true, || Ok(1))], LONG), [Ok(1)]);
    wake.wait(Some(LONG));
    answers.send(7).unwrap();
    wake.wait(Some(LONG));
    let again = job("absent", false, || panic!("its result is there"));
    assert_eq!(attempts.attempt(vec![again], LONG), [Ok(7)]);
}

#[test]
fn many_that_hang_leave_room_for_others() {
    let attempts = Attempts::new(Wake::default());
    let (jobs, answers): (Vec<_>, Vec<_>) = (0..MAX_UNDER_WAY + 10)
        .map(|number| hanging(&number.to_string()))
        .map(|(job, answers, _)| (job, answers))
        .unzip();
    attempts.attempt(jobs, Duration::ZERO);
    assert_eq!(attempts.table().under_way(), MAX_UNDER_WAY);
    // As if they had begun long ago.
    for slot in attempts.table().0.values_mut() {
        if let State::UnderWay(begun) = &mut slot.state {
            *begun -= HANGS_AFTER;
        }
    }
    assert_eq!(attempts.attempt(vec![job("other", true, || Ok(1))], LONG), [Ok(1)]);
    drop(answers);
}

#[test]
fn retries_come_at_growing_and_bounded_intervals() {
    assert_eq!(
        (interval(1), interval(2), interval(3)),
        (FIRST_RETRY, FIRST_RETRY * 2, FIRST_RETRY * 4)
    );
    assert_eq!((interval(6), interval(u32::MAX)), (LONGEST_RETRY, LONGEST_RETRY));
    let wake = Wake::default();
    let attempts = Attempts::new(wake.clone());
    let count = Arc::new(AtomicUsize::new(0));
    let again = || {
        let count = Arc::clone(&count);
        vec![job("a", false, move || {
            count.fetch_add(1, Ordering::Relaxed);
            Err(missing())
        })]
    };
    // The first is due at once, the second not yet.
    for _ in 0..2 {
        let progress = attempts.retry(again());
        assert!(progress.due.is_some());
        wake.wait(Some(Duration::from_millis(100)));
    }
    assert_eq!(count.load(Ordering::Relaxed), 1);
    attempts.make_due();
    assert!(attempts.retry(again()).news, "the reason is new");
    wake.wait(Some(LONG));
    assert_eq!(count.load(Ordering::Relaxed), 2);
    assert_eq!(attempts.attempt(again(), LONG), [Err(missing())]);
    assert!(!attempts.retry(again()).news, "the reason is known");
}
