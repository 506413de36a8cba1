//! Names and groups of users by number, as the name service of this machine knows
//! them (nsswitch). Answers are kept; a directory far away is asked on worker
//! threads, never on one that serves.

use super::gss::limits::IDENTITY_SECONDS;
use super::limits::{
    MAX_KNOWN_PRINCIPALS, MAX_LOOK_UPS, MAX_NAME_BYTES, NAME_SERVICE_WORKERS, UNANSWERED_SECONDS,
    USER_LOOKUP_PATIENCE,
};
use super::users;
use ahash::HashMap;
use futures_util::future::join_all;
use nix::unistd::{Gid, Group, Uid, User};
use std::hash::Hash;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;
use tokio::sync::Notify;
use tokio::time::timeout;
use zgate_io::{EngineChoice, IoEngine};
use zgate_nfs::runtime::{BoxedFuture, Names, PrincipalId, PrincipalKind, UserGroups};

/// Asks the name service; may block.
type Ask<K, V> = fn(&K) -> io::Result<V>;

/// Name of a user or a group.
type Name = (PrincipalKind, Box<str>);

/// One answer.
#[derive(Debug)]
struct Answer<V> {
    /// `None`: there was none yet, or the service could not tell.
    value: Option<V>,
    until_seconds: u64,
    is_asked: bool,
}

/// Answers to one kind of question.
#[derive(Debug)]
struct Answers<K, V> {
    known: Mutex<HashMap<K, Answer<V>>>,
    changed: Notify,
}

impl<K, V> Default for Answers<K, V> {
    fn default() -> Self {
        Self { known: Mutex::default(), changed: Notify::new() }
    }
}

/// Step of a request that needs an answer.
enum Step<V> {
    /// This is it; `None`: the service cannot tell.
    Done(Option<V>),
    /// As [`Step::Done`], and the service must be asked again.
    Renew(Option<V>),
    /// The service must be asked.
    Ask,
    /// It has been asked.
    Wait,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static, V: Clone + Send + Sync + 'static> Answers<K, V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Answer<V>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides what a request has to do; marks the question as asked if it is to
    /// be.
    fn step(&self, key: &K, now_seconds: u64) -> Step<V> {
        let mut known = self.lock();
        if let Some(answer) = known.get_mut(key) {
            let is_over = now_seconds >= answer.until_seconds;
            return match (&answer.value, answer.is_asked) {
                (None, true) => Step::Wait,
                (value, is_asked) if is_asked || !is_over => Step::Done(value.clone()),
                (value @ Some(_), _) => {
                    answer.is_asked = true;
                    Step::Renew(value.clone())
                }
                (None, _) => {
                    answer.is_asked = true;
                    Step::Ask
                }
            };
        }
        if known.len() >= MAX_KNOWN_PRINCIPALS {
            known.retain(|_, answer| answer.is_asked || now_seconds < answer.until_seconds);
            let any = known.iter().find(|(_, answer)| !answer.is_asked).map(|(key, _)| key.clone());
            // Those that are asked for are few (MAX_LOOK_UPS).
            any.filter(|_| known.len() >= MAX_KNOWN_PRINCIPALS).map(|any| known.remove(&any));
        }
        known.insert(key.clone(), Answer { value: None, until_seconds: 0, is_asked: true });
        Step::Ask
    }

    /// Takes an answer; an old one stays if the service could not tell.
    fn take(&self, key: &K, told: Option<V>, now_seconds: u64) {
        if let Some(answer) = self.lock().get_mut(key) {
            let seconds = if told.is_some() { IDENTITY_SECONDS } else { UNANSWERED_SECONDS };
            answer.until_seconds = now_seconds + seconds;
            answer.is_asked = false;
            answer.value = told.or_else(|| answer.value.take());
        }
        self.changed.notify_waiters();
    }
}

/// Workers that ask the name service.
#[derive(Debug)]
struct Workers {
    engine: OnceLock<IoEngine>,
    under_way: AtomicUsize,
    started: Instant,
}

/// A question under way. One that was dropped without an answer, because all
/// workers hang, counts as not told.
struct Question<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    answers: Arc<Answers<K, V>>,
    workers: Arc<Workers>,
    key: K,
    told: Option<V>,
}

impl<K, V> Question<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Asks the name service; the answer is kept when the question is dropped.
    fn ask(mut self, ask: Ask<K, V>) {
        match ask(&self.key) {
            Ok(told) => self.told = Some(told),
            Err(error) => crate::observe::throttle::warn_seldom!(
                %error, "the name service failed: check nsswitch.conf and the directory service"
            ),
        }
    }
}

impl<K, V> Drop for Question<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.workers.under_way.fetch_sub(1, Ordering::Relaxed);
        self.answers.take(&self.key, self.told.take(), self.workers.now_seconds());
    }
}

impl Workers {
    fn now_seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Asks the name service about `key`.
    fn ask<K, V>(self: &Arc<Self>, answers: &Arc<Answers<K, V>>, key: &K, ask: Ask<K, V>)
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        let under_way = self.under_way.fetch_add(1, Ordering::Relaxed);
        let (answers, workers, key) = (Arc::clone(answers), Arc::clone(self), key.clone());
        let question = Question { answers, workers, key, told: None };
        let Some(engine) = self.engine.get().filter(|_| under_way < MAX_LOOK_UPS) else { return };
        engine.detach(move || question.ask(ask));
    }

    /// Returns the answer about `key`; waits for it if there is none yet. `None`:
    /// the service cannot tell.
    async fn find<K, V>(
        self: &Arc<Self>,
        answers: &Arc<Answers<K, V>>,
        key: K,
        ask: Ask<K, V>,
    ) -> Option<V>
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        loop {
            let mut changed = pin!(answers.changed.notified());
            // From here on no answer is missed.
            changed.as_mut().enable();
            match answers.step(&key, self.now_seconds()) {
                Step::Done(value) => return value,
                Step::Renew(value) => {
                    self.ask(answers, &key, ask);
                    return value;
                }
                Step::Ask => self.ask(answers, &key, ask),
                Step::Wait => {}
            }
            changed.await;
        }
    }
}

/// Name service of this machine, with its answers.
#[derive(Debug)]
pub(crate) struct NameService {
    workers: Arc<Workers>,
    groups: Arc<Answers<u32, Arc<[u32]>>>,
    names: Arc<Answers<PrincipalId, Option<Arc<str>>>>,
    ids: Arc<Answers<Name, Option<u32>>>,
    /// Domain of names; the flag spares a lock where there is none.
    domain: RwLock<Arc<str>>,
    has_domain: AtomicBool,
}

impl NameService {
    pub(crate) fn new() -> Self {
        let workers = Workers {
            engine: OnceLock::new(),
            under_way: AtomicUsize::new(0),
            started: Instant::now(),
        };
        Self {
            workers: Arc::new(workers),
            groups: Arc::default(),
            names: Arc::default(),
            ids: Arc::default(),
            domain: RwLock::new("".into()),
            has_domain: AtomicBool::new(false),
        }
    }

    /// Starts the workers, unless they run.
    ///
    /// # Errors
    /// The system's, for threads.
    pub(crate) fn start(&self) -> io::Result<()> {
        if self.workers.engine.get().is_none() {
            let engine = IoEngine::new(EngineChoice::Threads, NAME_SERVICE_WORKERS)?;
            // Another start has come first: this one's workers end.
            drop(self.workers.engine.set(engine));
        }
        Ok(())
    }

    /// Uses names with this domain; `None`: numbers.
    pub(crate) fn set_domain(&self, domain: Option<&str>) {
        *self.domain.write().unwrap_or_else(PoisonError::into_inner) =
            domain.unwrap_or_default().into();
        self.has_domain.store(domain.is_some(), Ordering::Release);
    }

    /// Returns the service if NFSv4 has names.
    pub(crate) fn names(&self) -> Option<&dyn Names> {
        self.has_domain.load(Ordering::Acquire).then_some(self)
    }

    /// Returns the groups of users, which are asked for at the same time. Those that
    /// the service does not tell in time are missing.
    pub(crate) async fn groups_of(&self, uids: &[u32]) -> Arc<[UserGroups]> {
        let look_ups = uids.iter().map(|&uid| async move {
            let groups = self.workers.find(&self.groups, uid, ask_groups);
            let groups = timeout(USER_LOOKUP_PATIENCE, groups).await.ok().flatten()?;
            Some(UserGroups { uid, groups })
        });
        join_all(look_ups).await.into_iter().flatten().collect()
    }
}

impl Names for NameService {
    fn domain(&self) -> Arc<str> {
        Arc::clone(&self.domain.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn name_of(&self, id: PrincipalId) -> BoxedFuture<Option<Arc<str>>> {
        let (workers, names) = (Arc::clone(&self.workers), Arc::clone(&self.names));
        Box::pin(async move { workers.find(&names, id, ask_name).await.flatten() })
    }

    fn id_of(&self, kind: PrincipalKind, name: &str) -> BoxedFuture<Option<u32>> {
        let (workers, ids) = (Arc::clone(&self.workers), Arc::clone(&self.ids));
        let key = (kind, name.into());
        let is_sound = name.len() <= MAX_NAME_BYTES && !name.contains('\0');
        Box::pin(async move {
            if !is_sound {
                return None;
            }
            workers.find(&ids, key, ask_id).await.flatten()
        })
    }
}

/// The groups of a user; none if there is no such user.
fn ask_groups(uid: &u32) -> io::Result<Arc<[u32]>> {
    let Some(user) = User::from_uid(Uid::from_raw(*uid))? else { return Ok(Arc::from([])) };
    Ok(users::find(&user.name)?.map_or_else(|| Arc::from([]), |caller| caller.groups))
}

fn ask_name(id: &PrincipalId) -> io::Result<Option<Arc<str>>> {
    let name = match *id {
        PrincipalId::User(id) => User::from_uid(Uid::from_raw(id))?.map(|user| user.name),
        PrincipalId::Group(id) => Group::from_gid(Gid::from_raw(id))?.map(|group| group.name),
    };
    // A client would read another domain in it.
    let is_sound = |name: &String| name.len() <= MAX_NAME_BYTES && !name.contains('@');
    Ok(name.filter(is_sound).map(Arc::from))
}

fn ask_id((kind, name): &Name) -> io::Result<Option<u32>> {
    Ok(match kind {
        PrincipalKind::User => User::from_name(name)?.map(|user| user.uid.as_raw()),
        PrincipalKind::Group => Group::from_name(name)?.map(|group| group.gid.as_raw()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> NameService {
        let service = NameService::new();
        service.start().unwrap();
        service
    }

    #[tokio::test]
    async fn users_and_groups_of_this_machine_have_names_and_groups() {
        let service = started();
        assert!(service.names().is_none());
        service.set_domain(Some("example.org"));
        let names = service.names().unwrap();
        assert_eq!(&*names.domain(), "example.org");
        let root = PrincipalId::User(0);
        assert_eq!(names.name_of(root).await.as_deref(), Some("root"));
        assert_eq!(names.name_of(PrincipalId::Group(0)).await.as_deref(), Some("root"));
        assert_eq!(names.name_of(PrincipalId::User(4_000_000)).await, None);
        assert_eq!(names.id_of(PrincipalKind::User, "root").await, Some(0));
        assert_eq!(names.id_of(PrincipalKind::Group, "no such group").await, None);
        assert_eq!(names.id_of(PrincipalKind::User, "ro\0ot").await, None);
        let groups = service.groups_of(&[0, 4_000_000]).await;
        assert!(groups[0].groups.contains(&0) && groups[1].groups.is_empty());
        service.set_domain(None);
        assert!(service.names().is_none());
    }

    #[tokio::test]
    async fn a_question_is_asked_once_and_its_answer_kept() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        fn ask(_: &u32) -> io::Result<u32> {
            Ok(ASKED.fetch_add(1, Ordering::Relaxed) as u32)
        }
        let service = started();
        let answers = Arc::<Answers<u32, u32>>::default();
        let find = || service.workers.find(&answers, 7, ask);
        let (one, other, third) = tokio::join!(find(), find(), find());
        assert_eq!([one, other, third], [Some(0); 3]);
        assert_eq!(find().await, Some(0));
        // An old answer serves until there is a new one.
        answers.lock().get_mut(&7).unwrap().until_seconds = 0;
        assert_eq!(find().await, Some(0));
        while find().await != Some(1) {
            tokio::task::yield_now().await;
        }
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_service_that_fails_takes_nothing_away() {
        static WORKS: AtomicBool = AtomicBool::new(false);
        fn ask(_: &u32) -> io::Result<u32> {
            if WORKS.load(Ordering::Relaxed) { Ok(5) } else { Err(io::ErrorKind::TimedOut.into()) }
        }
        let service = started();
        let answers = Arc::<Answers<u32, u32>>::default();
        let find = || service.workers.find(&answers, 7, ask);
        let expire = || answers.lock().get_mut(&7).unwrap().until_seconds = 0;
        assert_eq!(find().await, None);
        // Not asked again at once.
        WORKS.store(true, Ordering::Relaxed);
        assert_eq!(find().await, None);
        expire();
        assert_eq!(find().await, Some(5));
        WORKS.store(false, Ordering::Relaxed);
        expire();
        assert_eq!(find().await, Some(5));
        while answers.lock()[&7].is_asked {
            tokio::task::yield_now().await;
        }
        assert_eq!(find().await, Some(5));
    }

    /// Time is virtual; the service hangs until the test is over.
    #[tokio::test(start_paused = true)]
    async fn a_silent_service_is_not_waited_for_longer_than_its_time() {
        static ANSWERS: AtomicBool = AtomicBool::new(false);
        fn ask(_: &u32) -> io::Result<u32> {
            while !ANSWERS.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Ok(5)
        }
        let service = started();
        let answers = Arc::<Answers<u32, u32>>::default();
        let find = || timeout(USER_LOOKUP_PATIENCE, service.workers.find(&answers, 7, ask));
        let begun = tokio::time::Instant::now();
        let (one, other) = tokio::join!(find(), find());
        assert!(one.is_err() && other.is_err());
        assert_eq!(begun.elapsed(), USER_LOOKUP_PATIENCE);
        assert_eq!(service.workers.under_way.load(Ordering::Relaxed), 1, "asked once");
        ANSWERS.store(true, Ordering::Relaxed);
        while answers.lock()[&7].is_asked {
            std::thread::yield_now();
        }
        assert_eq!(find().await, Ok(Some(5)));
    }

    /// Time is virtual; nobody answers about users 1 to 3.
    #[tokio::test(start_paused = true)]
    async fn users_that_the_service_is_silent_about_are_waited_for_together() {
        let service = NameService::new();
        for uid in 1..=4 {
            assert!(matches!(service.groups.step(&uid, 0), Step::Ask));
        }
        service.groups.take(&4, Some(Arc::from([7])), 0);
        let begun = tokio::time::Instant::now();
        let found = service.groups_of(&[1, 2, 3, 4]).await;
        assert_eq!(begun.elapsed(), USER_LOOKUP_PATIENCE);
        let found: Vec<_> = found.iter().map(|user| (user.uid, &*user.groups)).collect();
        assert_eq!(found, [(4, &[7][..])]);
    }

    #[test]
    fn answers_and_questions_are_bounded() {
        let answers = Answers::<u32, u32>::default();
        for key in 0..MAX_KNOWN_PRINCIPALS as u32 {
            assert!(matches!(answers.step(&key, 0), Step::Ask));
            answers.take(&key, Some(key), 0);
        }
        assert!(matches!(answers.step(&u32::MAX, 0), Step::Ask));
        assert_eq!(answers.lock().len(), MAX_KNOWN_PRINCIPALS);
        // One question more than may be asked is not told.
        let service = started();
        service.workers.under_way.store(MAX_LOOK_UPS, Ordering::Relaxed);
        let answers = Arc::new(answers);
        service.workers.ask(&answers, &u32::MAX, |_| Ok(1));
        assert!(matches!(answers.step(&u32::MAX, 0), Step::Done(None)));
        assert_eq!(service.workers.under_way.load(Ordering::Relaxed), MAX_LOOK_UPS);
    }
}
