//! A watch as clients meet it: good ones, and those that send or read nothing.

use mglru_cache::backend::MemoryFiles;
use mglru_cache::{BackendKind, Mechanisms, OpenMode, PageCache, Preset};
use mglru_watch::{Address, ListState, State, TenantState, Watch, Watched};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn cache() -> Arc<PageCache> {
    let builder =
        PageCache::builder(4 << 20).tenant("a", 2 << 20).tenant("a/b", 1 << 20).tenant("c", 1 << 20);
    Arc::new(builder.build().unwrap())
}

/// A watch on a free port.
fn watch(cache: &Arc<PageCache>) -> (Watch, SocketAddr) {
    let watch = Watch::start(&":0".parse().unwrap(), cache).unwrap();
    let Address::Tcp(at) = *watch.address() else { panic!("{watch:?}") };
    (watch, at)
}

/// The whole answer to a request.
fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(at: SocketAddr, path: &str) -> String {
    ask(TcpStream::connect(at).unwrap(), &format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n"))
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

/// Pages on the lists of a tenant, in bytes.
fn listed_bytes(tenant: &TenantState) -> u64 {
    tenant.lists.iter().map(ListState::bytes).sum()
}

#[test]
fn the_state_says_what_the_statistics_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    fs::write(&path, vec![1; 3 << 20]).unwrap();
    let cache = cache();
    let file = cache.tenant("a/b").unwrap().open(&path, OpenMode::ReadWrite).unwrap();
    let mut buffer = vec![0; 3 << 20];
    for _ in 0..2 {
        file.read_at(&mut buffer, 0).unwrap();
    }
    file.write_at(&[2; 8192], 0).unwrap();
    let (watch, _) = watch(&cache);
    let state = State::fetch(watch.address()).unwrap();
    let paths: Vec<_> = state.tenants.iter().map(|tenant| tenant.path.as_str()).collect();
    assert_eq!(paths, ["", "a", "a/b", "c"]);
    let stats = cache.tenant("a/b").unwrap().stats();
    for tenant in &state.tenants[..3] {
        assert_eq!((tenant.hits, tenant.misses), (stats.hits, stats.misses), "{tenant:?}");
        assert!(tenant.refaults > 0 && tenant.reclaimed > 0 && tenant.dirty_bytes == 8192, "{tenant:?}");
        // The limit, and the free page of metadata of each tenant above it.
        assert!((900 << 10..=(1 << 20) + 8192).contains(&tenant.usage_bytes), "{tenant:?}");
        assert!(listed_bytes(tenant) <= tenant.file_bytes && listed_bytes(tenant) > 0, "{tenant:?}");
    }
    assert_eq!(state.tenants[0].max_bytes, Some(4 << 20));
    assert_eq!((state.tenants[3].usage_bytes >> 12, state.tenants[3].hit_ratio()), (0, None));
    assert_eq!((state.pid, state.budget_bytes), (std::process::id(), 4 << 20));
    assert!(state.requests.is_none() && state.tenants_left_out == 0);
    assert_eq!(State::from_json(state.to_json().as_bytes()), Some(state));
}

#[test]
fn generations_are_those_of_the_multi_gen_policy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    for (preset, lists) in [("linux-7.1", None), ("default", Some("inactive"))] {
        let mechanisms = Mechanisms::compose(Preset::parse(preset).unwrap(), &[], &[]).unwrap();
        let cache = Arc::new(PageCache::builder(4 << 20).mechanisms(mechanisms).build().unwrap());
        let file = cache.open(&path, OpenMode::ReadOnly).unwrap();
        file.read_at(&mut vec![0; 1 << 20], 0).unwrap();
        let all = &State::of(&cache).tenants[0];
        assert_eq!(all.lists[0].age_ms.is_none(), lists.is_some(), "{all:?}");
        assert_eq!(all.lists[0].name, lists.map_or(all.lists[0].name.clone(), str::to_owned));
        // Pages that arrived last may not be on a list yet.
        assert!(listed_bytes(all) > 3 << 18, "{all:?}");
    }
}

#[test]
fn many_tenants_are_cut_to_those_that_use_most() {
    let files = MemoryFiles::new(1);
    let builder = PageCache::builder(64 << 20).backend(BackendKind::Memory(files.clone()));
    let cache = Arc::new(builder.build().unwrap());
    let read = |number: usize| {
        let name = number.to_string();
        files.set_contents(&name, &[1; 8192]);
        let tenant = cache.tenant(&format!("t{number}")).unwrap();
        let file = tenant.open(&name, OpenMode::ReadOnly).unwrap();
        file.read_at(&mut [0; 8192], 0).unwrap();
        file
    };
    for number in 0..1010 {
        cache.add_tenant(&format!("t{number}"), &mglru_cache::Limits::default()).unwrap();
    }
    // The first nine use little, or nothing any more.
    (0..9).for_each(|number| drop(read(number)));
    let _files: Vec<_> = (10..1010).map(read).collect();
    let state = State::of(&cache);
    let misses: u64 = cache.tenants().iter().map(|tenant| tenant.stats().misses).sum();
    assert!(misses >= 1009 && state.tenants[0].misses == misses, "also of those left out: {misses}");
    assert!(state.tenants.iter().all(|tenant| tenant.path != "t8"));
    assert_eq!((state.tenants.len(), state.tenants_left_out), (1001, 10));
    assert!(state.tenants[0].path.is_empty() && state.tenants.iter().any(|tenant| tenant.path == "t1009"));
}

#[test]
fn http_clients_get_the_page_the_state_and_the_metrics() {
    let cache = cache();
    let (_watch, at) = watch(&cache);
    let page = get(at, "/");
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("text/html") && page.contains("state.json"),
        "{page}"
    );
    // It may load nothing from elsewhere.
    assert!(page.contains("default-src 'none'") && !body(&page).contains("https://"));
    let metrics = get(at, "/metrics");
    assert!(
        metrics.contains("version=0.0.4") && metrics.contains("\nmglru_budget_bytes 4194304\n"),
        "{metrics}"
    );
    assert!(State::from_json(body(&get(at, "/state.json?x=1")).as_bytes()).is_some());
    let none = get(at, "/none");
    assert!(none.starts_with("HTTP/1.1 404") && none.contains("/metrics"), "{none}");
    let posted =
        ask(TcpStream::connect(at).unwrap(), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    assert!(
        posted.starts_with("HTTP/1.1 405") && posted.to_lowercase().contains("allow: get, head"),
        "{posted}"
    );
    let head = ask(TcpStream::connect(at).unwrap(), "HEAD /metrics HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && body(&head).is_empty(), "{head}");
}

#[test]
fn clients_that_send_nonsense_or_nothing_or_never_read_delay_neither_others_nor_the_cache() {
    let cache = cache();
    let (watch, at) = watch(&cache);
    // These stay connected: some stay silent, some send half a request, some never read the answer.
    let mut idle = Vec::new();
    for request in ["", "GET /state", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"] {
        for _ in 0..15 {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            idle.push(stream);
        }
    }
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    for nonsense in ["\0\0\0\0\r\n\r\n", "hello\n\n", "GET\r\n\r\n", &long] {
        let mut stream = TcpStream::connect(at).unwrap();
        // The other side may close before it has read everything.
        let _ = stream.write_all(nonsense.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }
    assert_eq!(State::fetch(watch.address()).unwrap().tenants.len(), 4);
    cache.sync().unwrap();
    // Dropping the watch waits for no client.
    drop(watch);
    assert!(TcpStream::connect(at).is_err());
    drop(idle);
    Arc::into_inner(cache).expect("the watch holds no reference").close().unwrap();
}

/// Texts that are longer than a socket holds. Each begins with its number.
#[derive(Default)]
struct Long(AtomicUsize);

impl Watched for Long {
    fn state(&self) -> State {
        State::default()
    }

    fn metrics(&self) -> String {
        format!("{:03} {}", self.0.fetch_add(1, Relaxed), "x".repeat(4 << 20))
    }
}

/// Each of them kept a text of its own in memory.
#[test]
fn clients_that_do_not_read_share_a_few_texts_and_delay_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watch");
    let long = Arc::new(Long::default());
    let _watch = Watch::start(&Address::Unix(path.clone()), &long).unwrap();
    let number = || {
        let answer = ask(UnixStream::connect(&path).unwrap(), "GET /metrics HTTP/1.0\r\n\r\n");
        assert_eq!(body(&answer).len(), 4 + (4 << 20));
        body(&answer)[..3].parse::<usize>().unwrap()
    };
    assert_eq!((number(), number()), (0, 1), "each is of its time");
    let slow: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            // The answer has begun.
            stream.read_exact(&mut [0; 8]).unwrap();
            stream
        })
        .collect();
    assert_eq!((number(), long.0.load(Relaxed)), (5, 6), "four texts for all that do not read");
    drop(slow);
    while number() < 6 {}
}

#[test]
fn a_unix_socket_is_for_this_user_and_removed_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("watch");
    let address = Address::Unix(path.clone());
    let cache = cache();
    let watch = Watch::start(&address, &cache).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(State::fetch(&address).unwrap().tenants.len(), 4);
    let text = ask(UnixStream::connect(&path).unwrap(), "GET /metrics HTTP/1.0\r\n\r\n");
    assert!(text.contains("mglru_tenants 4\n"), "{text}");
    let twice = Watch::start(&address, &cache).unwrap_err().to_string();
    assert!(twice.contains("another program listens at"), "{twice}");
    drop(watch);
    assert!(!path.exists());
    let gone = State::fetch(&address).unwrap_err().to_string();
    assert!(gone.contains("start the program with `--listen`"), "{gone}");
}

#[test]
fn what_is_in_the_way_is_replaced_only_if_it_is_a_dead_socket() {
    let folder = tempfile::tempdir().unwrap();
    let cache = cache();
    let start = |name: &str| Watch::start(&Address::Unix(folder.path().join(name)), &cache);
    let refused = |name: &str| start(name).unwrap_err().to_string();
    drop(UnixListener::bind(folder.path().join("dead")).unwrap());
    assert!(start("dead").is_ok());
    fs::write(folder.path().join("file"), "precious").unwrap();
    assert!(refused("file").contains("is not a socket"));
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"precious");
    assert!(refused("none/socket").contains("No such file"));
    assert!(refused(&"long".repeat(50)).contains("too long"));
    // Another program replaced the socket meanwhile.
    let watch = start("replaced").unwrap();
    fs::remove_file(folder.path().join("replaced")).unwrap();
    fs::write(folder.path().join("replaced"), "another's").unwrap();
    drop(watch);
    assert!(folder.path().join("replaced").exists());
}

#[test]
fn a_port_in_use_and_an_answer_of_something_else_are_errors_with_a_reason() {
    let cache = cache();
    let (watch, _) = watch(&cache);
    let taken = Watch::start(watch.address(), &cache).unwrap_err().to_string();
    assert!(taken.contains("another program listens there"), "{taken}");
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Address::Tcp(other.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        for answer in ["HTTP/1.1 404 Not Found\r\n\r\n{}", "HTTP/1.1 200 OK\r\n\r\n{}", "220 smtp ready\r\n"]
        {
            let (mut stream, _) = other.accept().unwrap();
            let mut request = [0; 64];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    for _ in 0..3 {
        let wrong = State::fetch(&at).unwrap_err().to_string();
        assert!(wrong.contains("not with the state of a cache"), "{wrong}");
    }
    answering.join().unwrap();
}

#[test]
fn a_closed_cache_answers_503() {
    let cache = cache();
    let (_watch, at) = watch(&cache);
    drop(cache);
    assert!(get(at, "/metrics").starts_with("HTTP/1.1 503"));
}
