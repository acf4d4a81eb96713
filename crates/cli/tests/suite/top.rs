//! `mglru top` at a real mount, by its mount point, its socket and its port.

use crate::common::{command, document, done, fails, skipped};
use crate::mount::{Serving, mounted_with, signal};
use crate::report_page::{browse_at, browser};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// The port in a line such as `mglru: http://127.0.0.1:9100/ has charts`.
fn address(line: &str) -> &str {
    line.split_once("http://").unwrap().1.split_once('/').unwrap().0
}

#[test]
fn top_shows_the_tenants_of_a_mount() {
    let here = tempfile::tempdir().unwrap();
    let Some((mut child, mut stderr)) = mounted_with(here.path(), "--listen unix:socket") else { return };
    fs::create_dir(here.path().join("point/sub")).unwrap();
    fs::write(here.path().join("point/sub/f"), vec![1; 2 << 20]).unwrap();
    assert_eq!(fs::read(here.path().join("point/sub/f")).unwrap().len(), 2 << 20);
    for place in ["point", "socket", "unix:socket"] {
        let text = done(here.path(), &format!("top {place} --once --sort tenant"));
        assert!(text.contains("preset default") && text.contains("budget 4 MiB"), "{text}");
        assert!(text.contains("since the start: ") && text.lines().all(|line| line.len() <= 200), "{text}");
        let line = text.lines().find(|line| line.trim_start().starts_with("t ")).expect("tenant t");
        assert!(line.contains("1 MiB"), "its limit: {line}");
        let state = document(here.path(), &format!("top {place}"));
        let tenants = state["tenants"].as_array().unwrap();
        assert_eq!((tenants.len(), tenants[1]["path"].as_str()), (2, Some("t")));
        assert!(tenants[1]["refaults"].as_u64().unwrap() > 0, "{tenants:?}");
        assert_eq!(state["requests"]["read_bytes"], 2 << 20);
        assert_eq!(state["pid"], child.id());
    }
    on_a_terminal(here.path(), 0, |_, terminal| terminal.write_all(b"q").unwrap());
    on_a_terminal(here.path(), 128 + 15, |top, _| signal(top, Signal::TERM));
    signal(&child, Signal::TERM);
    child.wait().unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert!(fails(here.path(), "top point --once", 2).contains("point is not a mount of mglru"), "{rest}");
    assert!(fails(here.path(), "top socket --once", 1).contains("expected a mount point"));
}

/// Draws until something ends it, and leaves the terminal as it was.
fn on_a_terminal(here: &std::path::Path, status: i32, end: impl FnOnce(&Child, &mut File)) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let side = ioctl_tiocgptpeer(&terminal, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&side, size).unwrap();
    let mut top = command(here, "top point --interval 0.1");
    top.stdin(side.try_clone().unwrap()).stdout(side);
    let mut child = top.spawn().unwrap();
    drop(top);
    let mut terminal = File::from(terminal);
    let (mut drawn, mut part) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&drawn).contains("PRESSURE") {
        let bytes = terminal.read(&mut part).expect("top draws before it ends");
        drawn.extend_from_slice(&part[..bytes]);
    }
    end(&child, &mut terminal);
    // Else it may wait for room in the terminal.
    let rest = std::thread::spawn(move || {
        while let Ok(bytes @ 1..) = terminal.read(&mut part) {
            drawn.extend_from_slice(&part[..bytes]);
        }
        String::from_utf8_lossy(&drawn).into_owned()
    });
    assert_eq!(child.wait().unwrap().code(), Some(status));
    let drawn = rest.join().unwrap();
    let last = |code: &str| drawn.rfind(&format!("\x1b[?{code}")).unwrap();
    assert!(last("1049l") > last("1049h"), "the screen from before");
    assert!(last("25h") > last("25l"), "a cursor");
}

/// `mglru mount dir point` that listens at a port, with the lines that it printed first.
fn listening(here: &Path, more: &str) -> Option<(Serving, BufReader<ChildStderr>, String)> {
    for name in ["dir", "point"] {
        fs::create_dir(here.join(name)).unwrap();
    }
    let mut mount = command(here, &format!("mount dir point --memory 4MiB --listen 127.0.0.1:0 {more}"));
    let mut child = Serving(mount.stderr(Stdio::piped()).spawn().unwrap());
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = String::new();
    while !lines.contains("mount") && stderr.read_line(&mut lines).unwrap() > 0 {}
    if lines.contains("cannot mount") {
        child.wait().unwrap();
        skipped(&lines);
        return None;
    }
    Some((child, stderr, lines))
}

#[test]
fn a_port_serves_the_page_and_the_state() {
    let here = tempfile::tempdir().unwrap();
    let Some((mut child, _stderr, lines)) = listening(here.path(), "") else { return };
    let at = address(&lines);
    assert!(done(here.path(), &format!("top {at} --once")).contains("budget 4 MiB"));
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(fails(here.path(), &format!("top {at} --once"), 1).contains("check the address"));
}

/// The page of a mount under load, as a browser shows it: it asks for the state every second, and
/// the browser does not wait for the seconds.
#[test]
fn a_browser_shows_a_mount_under_load_light_and_dark() {
    let Some(browser) = browser() else {
        return skipped("there is no chromium or chrome");
    };
    let here = tempfile::tempdir().unwrap();
    let tenant = "--tenant t=1MiB,path=sub";
    let Some((mut child, mut stderr, lines)) = listening(here.path(), tenant) else { return };
    let page = format!("http://{}/", address(&lines));
    fs::create_dir(here.path().join("point/sub")).unwrap();
    fs::write(here.path().join("point/sub/f"), vec![1; 2 << 20]).unwrap();
    let over = AtomicBool::new(false);
    let shown = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert_eq!(fs::read(here.path().join("point/sub/f")).unwrap().len(), 2 << 20);
            }
        });
        let shown = [("1", "light"), ("0", "dark")].map(|(scheme, name)| {
            let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
            let file = here.path().join(format!("{name}.png"));
            let shot = format!("--screenshot={}", file.display());
            let options = ["--virtual-time-budget=8000", &scheme, "--dump-dom", &shot];
            let dom = browse_at(&browser, here.path(), &options, &page)?;
            Some((dom, fs::read(file).unwrap()))
        });
        over.store(true, Ordering::Relaxed);
        shown
    });
    signal(&child, Signal::TERM);
    stderr.read_to_string(&mut String::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let [Some((light, light_png)), Some((dark, dark_png))] = shown else {
        return skipped(&format!("{} does not run here", browser.display()));
    };
    for dom in [&light, &dark] {
        assert!(dom.contains("preset default") && dom.contains("hidden=\"\""), "{dom}");
        // Six charts, of which the last is of requests and has two lines; the others have the root
        // and the tenant. Each value is a point.
        assert_eq!(dom.matches("<figure>").count(), 6, "{dom}");
        let lines: Vec<&str> =
            dom.split("<path d=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(lines.len(), 12, "{dom}");
        let points = lines.iter().filter(|line| line.matches('L').count() >= 2).count();
        assert!(points >= 10, "{lines:?}");
        assert_eq!(dom.split("<tbody").nth(1).unwrap().matches("<tr>").count(), 2, "{dom}");
        assert!(dom.contains(" of 1 MiB<"), "the tenant's limit: {dom}");
    }
    // A page of one colour would be some 5 kB.
    assert!(light_png.len() > 30_000 && dark_png.len() > 30_000);
    assert_ne!(light_png[..], dark_png[..]);
}

#[test]
fn wrong_places_and_intervals_are_refused() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("file"), "x").unwrap();
    for (arguments, reason) in [
        ("top file --once", "neither a mount point nor a socket"),
        (". --once", "unrecognized subcommand"),
        ("top . --once", "is not a mount of mglru"),
        ("top . --interval 0", "0.1 to 3600 seconds"),
        ("top . --sort size", "--sort"),
    ] {
        let error = fails(here.path(), arguments, 2);
        assert!(error.contains(reason), "{arguments}: {error}");
    }
}
