//! Holds the bounds of style that neither the compiler nor clippy holds: length of files, functions
//! and lines, a first line that says what a module is for, no leftovers, no dead files, scripts
//! that stop at the first error. Every violation is listed with file and line, all at once.
//!
//! It reads text and parses no Rust: comments, strings and characters are blanked out first, so
//! that what they hold is never taken for code. The rules are functions of text, and each is shown
//! to fail here on small samples, so that a rule that finds nothing says something.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Lines of a file, with the tests in it.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function, from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Characters of a line.
const LINE_CHARS_MAX: usize = 100;
/// Where scripts lie.
const SCRIPT_DIRS: [&str; 2] = ["scripts", ".ci"];
/// Macros that are of use on the way only.
const LEFTOVERS: [&str; 3] = ["todo", "unimplemented", "dbg"];
/// What a script begins with, behind its comments.
const STRICT: &str = "set -euo pipefail";

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    file: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// What is wrong with one file: line and words.
type Found = Vec<(usize, String)>;

/// Files by their path from the root of the repository.
type Files = BTreeMap<PathBuf, String>;

// ---- text -------------------------------------------------------------------------------------

/// The text with comments, strings and characters blanked out, every byte at its place.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => comment_end(bytes, at),
            b'"' => string_end(bytes, at + 1),
            b'\'' => char_end(text, at),
            b'r' if is_word_start(bytes, at) => raw_string_end(bytes, at),
            _ => at + 1,
        };
        if end > at + 1 {
            let blanked = code[at..end].iter_mut().filter(|byte| **byte != b'\n');
            blanked.for_each(|byte| *byte = b' ');
        }
        at = end;
    }
    String::from_utf8_lossy(&code).into_owned()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether a word begins here, but for the `b` or `c` of a string of bytes.
fn is_word_start(bytes: &[u8], at: usize) -> bool {
    let before = |at: usize| at.checked_sub(1).map(|at| bytes[at]);
    match before(at) {
        Some(b'b' | b'c') => !before(at - 1).is_some_and(is_word),
        other => !other.is_some_and(is_word),
    }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    let length = bytes[at..].iter().position(|byte| *byte == b'\n');
    length.map_or(bytes.len(), |length| at + length)
}

/// Comments nest.
fn comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Behind the quote that closes a string whose inside begins at `at`.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Behind a raw string whose `r` is at `at`; without one, behind the `r`.
fn raw_string_end(bytes: &[u8], at: usize) -> usize {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return at + 1;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let length = bytes[open + 1..].windows(close.len()).position(|window| window == close);
    length.map_or(bytes.len(), |length| open + 1 + length + close.len())
}

/// Behind a character; behind the quote alone when it begins a lifetime.
fn char_end(text: &str, at: usize) -> usize {
    let mut rest = text[at + 1..].char_indices();
    match rest.next() {
        Some((_, '\\')) => {
            // The escaped character itself may be a quote.
            let close = rest.skip(1).find(|(_, c)| *c == '\'');
            close.map_or(text.len(), |(offset, _)| at + 1 + offset + 1)
        }
        Some(_) => match rest.next() {
            Some((offset, '\'')) => at + 1 + offset + 1,
            _ => at + 1,
        },
        None => text.len(),
    }
}

/// Words of the code with their places, in order.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = code.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        at += bytes[at..].iter().take_while(|byte| !is_word(**byte)).count();
        let start = at;
        at += bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
        (at > start).then(|| (start, &code[start..at]))
    })
}

fn line_of(code: &str, at: usize) -> usize {
    1 + code[..at].bytes().filter(|byte| *byte == b'\n').count()
}

// ---- rules of one file ------------------------------------------------------------------------

fn file_length(text: &str) -> Found {
    let lines = text.lines().count();
    let what = format!("the file has {lines} lines, at most {FILE_LINES_MAX} are allowed");
    (lines > FILE_LINES_MAX).then_some((lines, what)).into_iter().collect()
}

fn line_lengths(text: &str) -> Found {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.chars().count()));
    let long = lines.filter(|(_, chars)| *chars > LINE_CHARS_MAX);
    long.map(|(line, chars)| (line, format!("{chars} characters, at most {LINE_CHARS_MAX}")))
        .collect()
}

fn module_doc(text: &str) -> Found {
    let first = text.lines().enumerate().find(|(_, line)| !line.trim().is_empty());
    match first {
        Some((_, line)) if line.starts_with("//!") => Vec::new(),
        Some((index, _)) => vec![(index + 1, "the file does not open with `//!`".to_owned())],
        None => vec![(1, "the file is empty".to_owned())],
    }
}

fn leftovers(code: &str) -> Found {
    let called = |at: usize, word: &str| code[at + word.len()..].starts_with('!');
    words(code)
        .filter(|(at, word)| LEFTOVERS.contains(word) && called(*at, word))
        .map(|(at, word)| (line_of(code, at), format!("`{word}!` is left over")))
        .collect()
}

fn function_lengths(code: &str) -> Found {
    let mut found = Vec::new();
    for (at, word) in words(code) {
        let name = || words(&code[at + 2..]).next().map_or("", |(_, name)| name);
        // A function pointer's type has no name.
        let named = code[at + word.len()..].trim_start().starts_with(|c: char| c != '(');
        if word != "fn" || !named {
            continue;
        }
        let Some((open, close)) = body(code, at) else { continue };
        let lines = 1 + line_of(code, close) - line_of(code, at);
        if lines > FUNCTION_LINES_MAX && open < close {
            let what = format!(
                "the function `{}` has {lines} lines, at most {FUNCTION_LINES_MAX} are allowed",
                name()
            );
            found.push((line_of(code, at), what));
        }
    }
    found
}

/// Places of the braces around the body of the function at `at`; none for one without a body.
fn body(code: &str, at: usize) -> Option<(usize, usize)> {
    let (mut brackets, mut braces, mut open) = (0, 0, None);
    for (offset, byte) in code[at..].bytes().enumerate() {
        match byte {
            b'(' | b'[' if open.is_none() => brackets += 1,
            b')' | b']' if open.is_none() => brackets -= 1,
            b';' if open.is_none() && brackets == 0 => return None,
            b'{' if open.is_some() || brackets == 0 => {
                open.get_or_insert(at + offset);
                braces += 1;
            }
            b'}' if open.is_some() => {
                braces -= 1;
                if braces == 0 {
                    return open.map(|open| (open, at + offset));
                }
            }
            _ => {}
        }
    }
    None
}

fn rust_rules(text: &str) -> Found {
    let code = code_of(text);
    let rules = [
        file_length(text),
        line_lengths(text),
        module_doc(text),
        leftovers(&code),
        function_lengths(&code),
    ];
    rules.concat()
}

/// A file that is run is strict from its first command on; one that is only read by others has no
/// `#!` and gets it from them.
fn script_rules(text: &str) -> Found {
    let mut found = line_lengths(text);
    if !text.starts_with("#!") {
        return found;
    }
    let is_command = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    let first = text.lines().enumerate().find(|(_, line)| is_command(line));
    match first {
        Some((_, line)) if line == STRICT => {}
        Some((index, _)) => found.push((index + 1, format!("it does not begin with `{STRICT}`"))),
        None => found.push((1, "the script does nothing".to_owned())),
    }
    found
}

// ---- dead files -------------------------------------------------------------------------------

/// Whether Cargo itself finds this file, in a crate at the root of the repository or one below.
fn is_root(path: &Path) -> bool {
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    let own = match parts.as_slice() {
        ["src" | "tests" | "benches" | "examples" | "build.rs", ..] => parts.as_slice(),
        _ => parts.get(1..).unwrap_or_default(),
    };
    matches!(
        own,
        ["build.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["src", "bin", _]
            | ["src", "bin", _, "main.rs"]
            | ["tests" | "benches" | "examples", _]
    )
}

/// Files that the modules of `path` may lie in, as its text declares them.
fn declared(path: &Path, text: &str) -> Vec<PathBuf> {
    let code = code_of(text);
    let here = path.parent().unwrap_or(Path::new(""));
    let stem = path.file_stem().unwrap_or_default();
    let own = is_root(path) || stem == "mod";
    let base = if own { here.to_path_buf() } else { here.join(stem) };
    // Modules written inline, with the depth of braces below which each ends.
    let mut inline: Vec<(usize, &str)> = Vec::new();
    let (mut depth, mut seen, mut files) = (0usize, 0, Vec::new());
    let mut all = words(&code).peekable();
    while let Some((at, word)) = all.next() {
        for byte in code[seen..at].bytes() {
            match byte {
                b'{' => depth += 1,
                b'}' => {
                    depth = depth.saturating_sub(1);
                    inline.retain(|(ends_below, _)| depth >= *ends_below);
                }
                _ => {}
            }
        }
        seen = at;
        let Some(&(name_at, name)) = all.peek().filter(|_| word == "mod") else { continue };
        let dir = inline.iter().fold(base.clone(), |dir, (_, name)| dir.join(name));
        match code[name_at + name.len()..].trim_start().chars().next() {
            Some('{') => inline.push((depth + 1, name)),
            Some(';') => match path_attribute(text, &code, at) {
                Some(file) => files.push(here.join(file)),
                None => {
                    files.push(dir.join(name).with_extension("rs"));
                    files.push(dir.join(name).join("mod.rs"));
                }
            },
            _ => {}
        }
    }
    files
}

/// The file that `#[path = "…"]` names in the attributes before the `mod` at `at`.
fn path_attribute<'t>(text: &'t str, code: &str, at: usize) -> Option<&'t str> {
    let item = code[..at].rfind([';', '{', '}']).map_or(0, |end| end + 1);
    let (_, value) = text[item..at].split_once("#[path = \"")?;
    value.split_once('"').map(|(file, _)| file)
}

/// Rust files that no root leads to.
fn dead_files(files: &Files) -> Vec<PathBuf> {
    let mut alive: BTreeSet<PathBuf> = files.keys().filter(|path| is_root(path)).cloned().collect();
    let mut open: Vec<PathBuf> = alive.iter().cloned().collect();
    while let Some(path) = open.pop() {
        let Some(text) = files.get(&path) else { continue };
        for file in declared(&path, text) {
            if files.contains_key(&file) && alive.insert(file.clone()) {
                open.push(file);
            }
        }
    }
    files.keys().filter(|path| !alive.contains(*path)).cloned().collect()
}

// ---- the repository ---------------------------------------------------------------------------

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where Rust lies: every crate, and what belongs to the one at the root.
fn rust_dirs() -> io::Result<Vec<PathBuf>> {
    let mut dirs: Vec<PathBuf> = ["src", "tests"].map(PathBuf::from).to_vec();
    for entry in root().read_dir()? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").is_file() {
            dirs.push(entry.file_name().into());
        }
    }
    Ok(dirs)
}

/// Files below these directories of the repository that `wanted` chooses.
fn read(mut open: Vec<PathBuf>, wanted: impl Fn(&Path) -> bool) -> io::Result<Files> {
    let root = root();
    let mut files = Files::new();
    while let Some(path) = open.pop() {
        if root.join(&path).is_dir() {
            for entry in root.join(&path).read_dir()? {
                let name = entry?.file_name();
                if name != "target" {
                    open.push(path.join(name));
                }
            }
        } else if wanted(&path) {
            files.insert(path.clone(), std::fs::read_to_string(root.join(&path))?);
        }
    }
    Ok(files)
}

fn violations(files: &Files, rules: impl Fn(&str) -> Found) -> Vec<Violation> {
    let of = |(file, text): (&PathBuf, &String)| {
        let found = rules(text).into_iter();
        found.map(|(line, what)| Violation { file: file.clone(), line, what }).collect::<Vec<_>>()
    };
    files.iter().flat_map(of).collect()
}

#[test]
fn the_repository_is_tidy() {
    let is_rust = |path: &Path| path.extension().is_some_and(|extension| extension == "rs");
    let rust = read(rust_dirs().unwrap(), is_rust).unwrap();
    let scripts = read(SCRIPT_DIRS.map(PathBuf::from).to_vec(), |_| true).unwrap();
    assert!(rust.len() > 100 && scripts.len() > 5, "the repository was not found");
    let mut all = violations(&rust, rust_rules);
    all.extend(violations(&scripts, script_rules));
    all.extend(dead_files(&rust).into_iter().map(|file| Violation {
        file,
        line: 1,
        what: "no `mod` leads to this file".to_owned(),
    }));
    all.sort();
    let text: Vec<_> = all.iter().map(Violation::to_string).collect();
    assert!(text.is_empty(), "{} violations:\n{}", text.len(), text.join("\n"));
}

// ---- the rules themselves ---------------------------------------------------------------------

fn lines_of(found: &Found) -> Vec<usize> {
    found.iter().map(|(line, _)| *line).collect()
}

#[test]
fn comments_strings_and_characters_are_no_code() {
    let cases = [
        ("a // fn b\nc", "a        \nc"),
        ("a /* { /* { */ } */ b", "a                   b"),
        ("f(\"}\\\"}\", b\"}\")", "f(      , b   )"),
        ("r#\"} \" }\"# x", "           x"),
        ("br\"}\" x", "b     x"),
        ("'{' '\\'' '\\u{7d}' 'é' x", "                       x"),
        ("&'a str", "&'a str"),
        ("for_r\"}\" break crate", "for_r    break crate"),
    ];
    for (text, code) in cases {
        // Two bytes of a blanked letter are two blanks.
        assert_eq!(code_of(text).trim_end(), code.trim_end(), "{text}");
    }
}

#[test]
fn lengths_are_allowed_up_to_their_bounds() {
    let lines = |count: usize| "x\n".repeat(count);
    assert_eq!(file_length(&lines(FILE_LINES_MAX)), []);
    assert_eq!(lines_of(&file_length(&lines(FILE_LINES_MAX + 1))), [FILE_LINES_MAX + 1]);
    let wide = |count: usize| format!("ok\n{}\n", "é".repeat(count));
    assert_eq!(line_lengths(&wide(LINE_CHARS_MAX)), []);
    assert_eq!(lines_of(&line_lengths(&wide(LINE_CHARS_MAX + 1))), [2]);
}

#[test]
fn a_function_is_measured_from_its_fn_to_its_closing_brace() {
    let function =
        |inside: usize| format!("\nfn f(a: [u8; 3]) {{\n{}}}\n", "{ \"}\" }\n".repeat(inside));
    let found = |text: &str| function_lengths(&code_of(text));
    assert_eq!(found(&function(FUNCTION_LINES_MAX - 2)), []);
    let long = found(&function(FUNCTION_LINES_MAX - 1));
    assert_eq!(lines_of(&long), [2]);
    assert!(long[0].1.contains("`f` has 71 lines"), "{long:?}");
    let blank = "\n".repeat(FUNCTION_LINES_MAX);
    assert_eq!(found(&format!("trait T {{ fn f();{blank} }}")), [], "no body");
    assert_eq!(found(&format!("type F = fn(u8);{blank} struct S {{}}")), [], "no name");
    let nested = found(&format!("fn outer() {{ fn inner() {{ {blank} }} }}"));
    assert_eq!(nested.len(), 2, "both are too long");
}

#[test]
fn a_module_opens_with_what_it_is_for() {
    assert_eq!(module_doc("\n//! Words.\n"), []);
    for text in ["", "// Words.\n", "/// Words.\n", "use std::io;\n//! Late.\n"] {
        assert_eq!(lines_of(&module_doc(text)), [1], "{text:?}");
    }
}

#[test]
fn leftovers_are_found_in_code_only() {
    let found = |text: &str| lines_of(&leftovers(&code_of(text)));
    assert_eq!(found("fn a() {\n    todo!()\n}\n"), [2]);
    assert_eq!(found("unimplemented!(\"x\"); dbg!(1);"), [1, 1]);
    assert_eq!(found("// todo!()\nlet s = \"dbg!(1)\"; let todo = not_todo!();"), []);
}

#[test]
fn a_script_that_is_run_is_strict_from_its_first_command_on() {
    assert_eq!(script_rules("#!/usr/bin/env bash\n# Words.\n\nset -euo pipefail\ntrue\n"), []);
    assert_eq!(script_rules("# Sourced by others.\nf() { true; }\n"), []);
    let late = script_rules("#!/usr/bin/env bash\ncd /\nset -euo pipefail\n");
    assert_eq!(lines_of(&late), [2]);
    assert_eq!(lines_of(&script_rules("#!/bin/bash\nset -eu\n")), [2]);
    assert_eq!(lines_of(&script_rules("#!/bin/bash\n")), [1]);
}

#[test]
fn a_file_that_no_module_names_is_dead() {
    let files = [
        ("a/src/lib.rs", "mod b;\npub mod c;\n// mod dead;\nmod d { mod e; }\n"),
        ("a/src/b.rs", "#[cfg(test)]\n#[path = \"b/checks.rs\"]\nmod tests;\n"),
        ("a/src/b/checks.rs", ""),
        ("a/src/c/mod.rs", "mod f;"),
        ("a/src/c/f.rs", ""),
        ("a/src/d/e.rs", ""),
        ("a/src/bin/tool/main.rs", "mod part;"),
        ("a/src/bin/tool/part.rs", ""),
        ("a/tests/whole.rs", "mod common;"),
        ("a/tests/common/mod.rs", ""),
        ("a/src/dead.rs", ""),
        ("a/src/e.rs", ""),
        ("a/src/b/tests.rs", ""),
        ("a/src/tests/one.rs", ""),
        ("a/tests/common/other.rs", ""),
    ];
    let files: Files =
        files.into_iter().map(|(path, text)| (PathBuf::from(path), text.to_owned())).collect();
    let dead = dead_files(&files);
    let expected = [
        "a/src/b/tests.rs",
        "a/src/dead.rs",
        "a/src/e.rs",
        "a/src/tests/one.rs",
        "a/tests/common/other.rs",
    ];
    assert_eq!(dead, expected.map(PathBuf::from));
}
