//! The store of results.
//!
//! `ID-FORM/results.jsonl` gets a line for each cell as soon as the cell is measured. `ID-FORM/meta.json`
//! has the origin of the results. All results in a store have the same commit, parameters and kernel. If a
//! new run differs in one of them, the earlier results move to `ID-FORM.before`. If this name is taken,
//! they move to `ID-FORM.before-2`, and so on.

use crate::experiment::{Cell, Drawing};
use crate::manifest::{Form, Manifest};
use crate::results::{Done, Results};
use anyhow::{Context, Result};
use pages::origin;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

const RESULTS: &str = "results.jsonl";
const META: &str = "meta.json";
const SVG: &str = "svg";

/// The origin of a store's results.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) id: String,
    pub(crate) form: Form,
    pub(crate) parameters: toml::Table,
    /// Commit of the sources, with the suffix `-dirty` if the sources had changes.
    pub(crate) commit: String,
    pub(crate) command: String,
    /// Start of the run, in UTC.
    pub(crate) began: String,
    pub(crate) kernel: String,
    pub(crate) processors: usize,
    /// Processor, memory and load at the start of the run.
    #[serde(default)]
    pub(crate) machine: String,
}

impl Meta {
    /// Describes a run that begins now.
    pub(crate) fn now(manifest: &Manifest, form: Form) -> Self {
        Self {
            id: manifest.id.clone(),
            form,
            parameters: manifest.parameters(form),
            commit: origin::commit(Path::new(env!("CARGO_MANIFEST_DIR"))),
            command: origin::priority() + &origin::typed(std::env::args()),
            began: origin::date(),
            kernel: origin::kernel(),
            processors: origin::processors(),
            machine: origin::hardware(),
        }
    }

    /// Reports whether results of this run may be added to the results whose origin is `before`.
    fn goes_on(&self, before: &Self) -> bool {
        self.commit == before.commit && self.parameters == before.parameters && self.kernel == before.kernel
    }
}

/// The results of one experiment in one form.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) results: Results,
    dir: PathBuf,
    file: File,
}

fn dir_of(out: &Path, id: &str, form: Form) -> PathBuf {
    out.join(format!("{id}-{form}"))
}

impl Store {
    /// Opens a store, and resumes its run. If the stored results do not match `meta`, or if `is_fresh` is
    /// true, moves them to another directory.
    ///
    /// # Errors
    /// Fails if a file cannot be read or written.
    pub(crate) fn open(out: &Path, meta: Meta, is_fresh: bool) -> Result<Self> {
        let dir = dir_of(out, &meta.id, meta.form);
        let before = read(&dir)?;
        let (results, meta) = match before {
            Some((before, results)) if !is_fresh && meta.goes_on(&before) => (results, before),
            Some(_) => {
                put_aside(&dir)?;
                (Results::default(), meta)
            }
            None => (Results::default(), meta),
        };
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        std::fs::write(dir.join(META), serde_json::to_vec_pretty(&meta)?)?;
        let path = dir.join(RESULTS);
        let mut file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        for done in &results.0 {
            write_line(&mut file, done)?;
        }
        Ok(Self { results, dir, file })
    }

    /// Reports whether the store has pictures.
    pub(crate) fn has_drawings(&self) -> bool {
        !drawings_in(&self.dir).is_empty()
    }

    /// Stores pictures.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(crate) fn keep_drawings(&self, drawings: &[Drawing]) -> Result<()> {
        for Drawing { name, svg } in drawings {
            let path = self.dir.join(name).with_extension(SVG);
            std::fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Reports whether the store has the result of a cell.
    pub(crate) fn has(&self, cell: &Cell) -> bool {
        self.results.0.iter().any(|done| done.is(cell))
    }

    /// Stores the result of a cell.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn keep(&mut self, done: Done) -> Result<()> {
        write_line(&mut self.file, &done)?;
        self.results.0.push(done);
        Ok(())
    }
}

fn write_line(file: &mut File, done: &Done) -> Result<()> {
    let mut line = serde_json::to_vec(done)?;
    line.push(b'\n');
    file.write_all(&line).context("cannot store a result")
}

/// Renames the directory to the first free name, so no results are overwritten.
fn put_aside(dir: &Path) -> Result<()> {
    let named = |end: String| {
        let mut aside = dir.as_os_str().to_owned();
        aside.push(end);
        PathBuf::from(aside)
    };
    let mut aside = named(".before".to_owned());
    let mut number = 2;
    while aside.exists() {
        aside = named(format!(".before-{number}"));
        number += 1;
    }
    std::fs::rename(dir, &aside).with_context(|| format!("cannot move {} aside", dir.display()))?;
    println!("earlier results moved to {}", aside.display());
    Ok(())
}

/// Returns the stored results of an experiment in a form, or `None` if no results exist.
///
/// # Errors
/// Fails if the results cannot be read.
pub(crate) fn kept(out: &Path, id: &str, form: Form) -> Result<Option<(Meta, Results)>> {
    read(&dir_of(out, id, form))
}

/// Returns the stored pictures of an experiment in a form, sorted by name.
///
/// # Errors
/// Fails if a picture cannot be read.
pub(crate) fn kept_drawings(out: &Path, id: &str, form: Form) -> Result<Vec<String>> {
    let read = |path: PathBuf| {
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    drawings_in(&dir_of(out, id, form)).into_iter().map(read).collect()
}

fn drawings_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|it| it == SVG)).collect();
    paths.sort_unstable();
    paths
}

fn read(dir: &Path) -> Result<Option<(Meta, Results)>> {
    let (meta, results) = (dir.join(META), dir.join(RESULTS));
    if !meta.exists() || !results.exists() {
        return Ok(None);
    }
    let text = std::fs::read(&meta).with_context(|| format!("cannot read {}", meta.display()))?;
    let meta = serde_json::from_slice(&text).with_context(|| format!("{}", meta.display()))?;
    let text =
        std::fs::read_to_string(&results).with_context(|| format!("cannot read {}", results.display()))?;
    // A last line without a newline is incomplete, because the lab was killed while it stored the cell.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().enumerate().map(|(n, line)| {
        serde_json::from_str(line).with_context(|| format!("{}, line {}", results.display(), n + 1))
    });
    Ok(Some((meta, Results(lines.collect::<Result<_>>()?))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Point;
    use crate::results::tests::done;

    fn meta(commit: &str) -> Meta {
        Meta {
            id: "x".into(),
            form: Form::Quick,
            parameters: toml::Table::new(),
            commit: commit.into(),
            command: String::new(),
            began: String::new(),
            kernel: String::new(),
            processors: 1,
            machine: String::new(),
        }
    }

    fn cell(x: f64) -> Cell {
        Cell::new(&Point::new("p", "s", x), 0, 1)
    }

    #[test]
    fn a_run_goes_on_where_it_was_killed_in_the_middle_of_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path(), meta("a"), false).unwrap();
        store.keep(done("p", "s", 0.1, 0, 1.0)).unwrap();
        store.file.write_all(b"{\"panel\":").unwrap();
        let again = Store::open(dir.path(), meta("a"), false).unwrap();
        assert!(again.has(&cell(0.1)) && !again.has(&cell(0.2)));
        assert_eq!(kept(dir.path(), "x", Form::Quick).unwrap().unwrap().1.0.len(), 1);
    }

    #[test]
    fn pictures_are_kept_beside_results_in_the_order_of_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), meta("a"), false).unwrap();
        assert!(!store.has_drawings());
        let drawing = |name: &str| Drawing { name: name.into(), svg: format!("<svg>{name}</svg>") };
        store.keep_drawings(&[drawing("2-b"), drawing("1-a")]).unwrap();
        assert!(store.has_drawings());
        let kept = kept_drawings(dir.path(), "x", Form::Quick).unwrap();
        assert_eq!(kept, ["<svg>1-a</svg>", "<svg>2-b</svg>"]);
    }

    #[test]
    fn results_of_another_commit_are_put_aside_and_so_are_unwanted_ones() {
        let dir = tempfile::tempdir().unwrap();
        Store::open(dir.path(), meta("a"), false).unwrap().keep(done("p", "s", 1.0, 0, 1.0)).unwrap();
        assert!(!Store::open(dir.path(), meta("b"), false).unwrap().has(&cell(1.0)));
        let aside = |name: &str| dir.path().join(name).join(RESULTS);
        assert!(aside("x-quick.before").exists() && !aside("x-quick.before-2").exists());
        Store::open(dir.path(), meta("b"), false).unwrap().keep(done("p", "s", 1.0, 0, 1.0)).unwrap();
        assert!(!Store::open(dir.path(), meta("b"), true).unwrap().has(&cell(1.0)));
        assert!(aside("x-quick.before").exists() && aside("x-quick.before-2").exists());
    }
}
