//! Tests of the module's common parts: all policies in manifests exist, and statistics and pauses are
//! correct.

use super::*;
use crate::experiments::one;
use crate::manifest::Form;

#[test]
fn every_policy_that_a_manifest_names_is_there() {
    for id in ["sba-bandwidth", "sba-completion", "sba-lies", "sba-messages"] {
        let manifest = one(id).unwrap().manifest;
        for form in [Form::Quick, Form::Full] {
            let parameters = manifest.parameters(form);
            let series = parameters["series"].as_array().unwrap();
            for name in series.iter().map(|it| it.as_str().unwrap()) {
                assert!(Setup::named(name, 1000).is_ok(), "{id}: {name}");
            }
        }
    }
}

#[test]
fn a_summary_has_count_mean_deviation_and_jain_index() {
    let sum = Sum::of(&[1.0, 2.0, 3.0, 6.0]).unwrap();
    assert_eq!((sum.count, sum.mean), (4.0, 3.0));
    assert!((sum.deviation - (14.0_f64 / 3.0).sqrt()).abs() < 1e-9);
    assert!((sum.jain - 144.0 / (4.0 * 50.0)).abs() < 1e-9);
    assert!(Sum::of(&[1.0]).is_err());
    let mut values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
    assert_eq!(p99(&mut values).unwrap(), 198.0);
}

#[test]
fn pauses_have_the_mean_that_is_asked_for() {
    let mut dice = Dice::new(5);
    let sum: Duration = (0..100_000).map(|_| dice.pause(50.0)).sum();
    assert!((sum.as_secs_f64() / 2000.0 - 1.0).abs() < 0.02, "{sum:?}");
}
