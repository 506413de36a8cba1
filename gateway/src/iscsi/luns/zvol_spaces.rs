//! The space behind thin zvols. One command of `zfs` tells it for all zvols below a dataset.

use crate::iscsi::limits::SPACE_LEAST_INTERVAL;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};
use zgate_block::SpaceBelow;
use zgate_control::{DatasetName, SystemTool, Tool, ToolError};

/// Time limit of a `zfs` query for the space of volumes, in seconds.
const ZFS_SECONDS: u64 = 10;
/// Properties that are asked for.
const COLUMNS: &str = "name,available,used,usedbydataset,volsize,refreservation";
/// Values of all but the name, in this order; none for what a dataset does not have.
type Values = [Option<u64>; 5];

/// Space of the zvols directly below a dataset, by their names; `None` if all of a zvol's space
/// is reserved.
type Spaces = BTreeMap<String, Option<SpaceBelow>>;

/// Last answer about a parent; none before the first. The first caller that finds it too old asks,
/// while the others wait for the lock, in their order.
type LastAnswer = Arc<Mutex<Option<Answer>>>;

/// Space behind thin zvols, as ZFS told it last.
pub(crate) struct ZvolSpaces {
    tool: Arc<dyn Tool>,
    /// About each dataset that zvols are directly below.
    parents: std::sync::Mutex<BTreeMap<DatasetName, LastAnswer>>,
}

/// Answer about a parent.
struct Answer {
    /// When it was asked.
    asked: Instant,
    spaces: Result<Spaces, Arc<ToolError>>,
}

/// Space behind a zvol.
pub(super) struct ZvolSpace {
    /// When ZFS was asked.
    pub(super) asked: Instant,
    /// `None` if all of it is reserved.
    pub(super) space: Result<Option<SpaceBelow>, Arc<ToolError>>,
}

impl ZvolSpaces {
    /// Knows nothing yet.
    pub(super) fn new() -> Self {
        Self::with(Arc::new(SystemTool { limit_seconds: ZFS_SECONDS }))
    }

    fn with(tool: Arc<dyn Tool>) -> Self {
        Self { tool, parents: std::sync::Mutex::default() }
    }

    /// Returns the space of a zvol: what ZFS has answered to a question later than
    /// `newer_than`, else what it answers now. Waits for one question that is under way and one
    /// more, which begins [`SPACE_LEAST_INTERVAL`] after the last one or later, and whose answer
    /// is for all who wait.
    pub(super) async fn of(&self, dataset: &DatasetName, newer_than: Instant) -> ZvolSpace {
        let Some(parent) = dataset.parent() else {
            let space = Err(Arc::new(not_told(format!("{dataset} is a pool"))));
            return ZvolSpace { asked: Instant::now(), space };
        };
        let last = self.last_of(&parent);
        let mut last = last.lock().await;
        let known = last.as_ref().filter(|known| known.asked > newer_than);
        let answer = match known {
            Some(known) => known,
            None => {
                if let Some(before) = &*last {
                    sleep_until(before.asked + SPACE_LEAST_INTERVAL).await;
                }
                let answer = self.ask(parent).await;
                &*last.insert(answer)
            }
        };
        let space = match &answer.spaces {
            Ok(spaces) => match spaces.get(dataset.as_str()) {
                Some(space) => Ok(*space),
                None => Err(Arc::new(not_told(format!("{dataset} is not listed")))),
            },
            Err(error) => Err(Arc::clone(error)),
        };
        ZvolSpace { asked: answer.asked, space }
    }

    fn last_of(&self, parent: &DatasetName) -> LastAnswer {
        let mut parents = self.parents.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(parents.entry(parent.clone()).or_default())
    }

    async fn ask(&self, parent: DatasetName) -> Answer {
        let (tool, asked) = (Arc::clone(&self.tool), Instant::now());
        let spaces = tokio::task::spawn_blocking(move || spaces_below(&*tool, &parent)).await;
        let spaces = spaces.unwrap_or_else(|error| Err(not_told(error.to_string())));
        Answer { asked, spaces: spaces.map_err(Arc::new) }
    }
}

fn not_told(reason: String) -> ToolError {
    ToolError::Answer { command: "zfs list".to_owned(), reason }
}

/// Asks for the space of all zvols directly below a dataset, and of its pool.
fn spaces_below(tool: &dyn Tool, parent: &DatasetName) -> Result<Spaces, ToolError> {
    let pool = parent.pool();
    let pool = pool.as_str();
    let types = "filesystem,volume";
    // ZFS lists what is named twice once.
    let arguments = ["list", "-Hp", "-d", "1", "-t", types, "-o", COLUMNS, pool, parent.as_str()];
    let said = tool.run("zfs", &arguments)?;
    let mut of_pool = said.lines().filter_map(values).filter(|(name, _)| *name == pool);
    let total_bytes = of_pool.next().and_then(|(_, [available, used, ..])| {
        let (available, used) = available.zip(used)?;
        Some(available.saturating_add(used))
    });
    let zvols = said.lines().filter_map(values).filter_map(|(name, values)| {
        // File systems have no size.
        let [_, _, _, Some(size), _] = values else { return None };
        Some((name.to_owned(), space(values, size, total_bytes)))
    });
    Ok(zvols.collect())
}

fn values(line: &str) -> Option<(&str, Values)> {
    let (name, rest) = line.split_once('\t')?;
    let mut values = rest.split('\t').map(|text| text.parse::<u64>().ok());
    let mut next = || values.next().flatten();
    Some((name, [next(), next(), next(), next(), next()]))
}

/// Returns the space of a zvol of this size; `None` if all of it is reserved, or is not told.
fn space(values: Values, size: u64, total_bytes: Option<u64>) -> Option<SpaceBelow> {
    let [available, _, used_by_dataset, _, reserved] = values;
    if reserved.is_some_and(|reserved| reserved >= size) {
        return None;
    }
    Some(SpaceBelow {
        available_bytes: available?,
        total_bytes: total_bytes?,
        used_bytes: used_by_dataset?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iscsi::limits::SPACE_INTERVAL;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    const LISTED: &str = "tank\t500\t4500\t1\t-\t0\n\
        tank/vm\t500\t160\t1\t-\t0\n\
        tank/vm/directory\t500\t1\t1\t-\t0\n\
        tank/vm/a b\t500\t80\t70\t1000\t0\n\
        tank/vm/full\t600\t1000\t30\t1000\t1000\n";

    /// A pool that counts the questions, and tells nothing while it is away.
    #[derive(Default)]
    struct Counted {
        commands: AtomicUsize,
        is_away: AtomicBool,
    }

    impl Tool for Counted {
        fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
            let command = zgate_control::tool::command_line(program, arguments);
            let below = format!("zfs list -Hp -d 1 -t filesystem,volume -o {COLUMNS} tank tank/vm");
            assert_eq!(command, below);
            self.commands.fetch_add(1, Ordering::Relaxed);
            if self.is_away.load(Ordering::Relaxed) {
                let said = "cannot open 'tank': dataset does not exist".to_owned();
                return Err(ToolError::Failed { command, status: Some(1), said });
            }
            Ok(LISTED.to_owned())
        }
    }

    fn counted() -> (Arc<Counted>, Arc<ZvolSpaces>) {
        let tool = Arc::new(Counted::default());
        let spaces = ZvolSpaces::with(Arc::<Counted>::clone(&tool));
        (tool, Arc::new(spaces))
    }

    fn thin() -> DatasetName {
        "tank/vm/a b".parse().unwrap()
    }

    /// Asks for many zvols at once, with these times; returns when ZFS was asked for each.
    async fn ask_all(spaces: &Arc<ZvolSpaces>, newer_than: &[Instant]) -> Vec<Instant> {
        let ask = |&newer_than: &Instant| {
            let spaces = Arc::clone(spaces);
            tokio::spawn(async move {
                let told = spaces.of(&thin(), newer_than).await;
                assert_eq!(told.space.unwrap().unwrap().used_bytes, 70);
                told.asked
            })
        };
        let waiting: Vec<_> = newer_than.iter().map(ask).collect();
        let mut asked = Vec::new();
        for one in waiting {
            asked.push(one.await.unwrap());
        }
        asked
    }

    #[tokio::test(start_paused = true)]
    async fn the_space_of_a_zvol_is_its_pools() {
        let (tool, spaces) = counted();
        let space = spaces.of(&thin(), Instant::now()).await.space.unwrap().unwrap();
        assert_eq!((space.available_bytes, space.total_bytes, space.used_bytes), (500, 5000, 70));
        let full = "tank/vm/full".parse().unwrap();
        let none = spaces.of(&full, Instant::now()).await.space.unwrap();
        assert_eq!(none, None, "nothing can run short");
        for unknown in ["tank/vm/gone", "tank/vm/directory"] {
            let name = unknown.parse().unwrap();
            let said = spaces.of(&name, Instant::now()).await.space.unwrap_err().to_string();
            assert!(said.contains(&format!("{unknown} is not listed")), "{said}");
        }
        tool.is_away.store(true, Ordering::Relaxed);
        let away = spaces.of(&full, Instant::now()).await.space;
        assert!(away.unwrap_err().is_absent());
    }

    #[tokio::test(start_paused = true)]
    async fn one_question_is_enough_for_all_zvols_below_a_dataset() {
        let (tool, spaces) = counted();
        let commands = || tool.commands.load(Ordering::Relaxed);
        // One may have been made, or have got its size, after the first question began.
        let begin = Instant::now();
        let first = ask_all(&spaces, &[begin; 30]).await;
        assert_eq!(commands(), 2);
        assert!(first.iter().all(|&asked| asked < begin + 2 * SPACE_LEAST_INTERVAL));
        // Again at the interval, each by itself.
        tokio::time::advance(SPACE_INTERVAL + SPACE_LEAST_INTERVAL).await;
        let old = Instant::now().checked_sub(SPACE_INTERVAL).unwrap();
        let second = ask_all(&spaces, &[old; 30]).await;
        assert_eq!(commands(), 3);
        assert!(second.iter().all(|&asked| asked == second[0] && asked > first[29]));
    }

    #[tokio::test(start_paused = true)]
    async fn zfs_is_not_asked_about_new_zvols_more_often_than_at_the_least_interval() {
        let (tool, spaces) = counted();
        let begin = Instant::now();
        for _ in 0..10 {
            ask_all(&spaces, &[Instant::now()]).await;
        }
        assert_eq!(tool.commands.load(Ordering::Relaxed), 10);
        assert!(begin.elapsed() >= 9 * SPACE_LEAST_INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_closed_while_it_waits_keeps_nobody_from_asking() {
        let (tool, spaces) = counted();
        let commands = || tool.commands.load(Ordering::Relaxed);
        let (zvol, begin) = (thin(), Instant::now());
        let first = ask_all(&spaces, &[begin]).await;
        tokio::select! {
            biased;
            _ = spaces.of(&zvol, begin) => panic!("it waits for the least interval"),
            () = std::future::ready(()) => {}
        }
        let earlier = begin.checked_sub(SPACE_LEAST_INTERVAL).unwrap();
        assert_eq!((ask_all(&spaces, &[earlier]).await, commands()), (first, 1));
        ask_all(&spaces, &[begin]).await;
        assert_eq!(commands(), 2);
    }
}
