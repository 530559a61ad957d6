//! Which extensions two ends use.

use sctp::{AssociationConfig, EndpointConfig, Extension, Extensions};
use sim::{Conversation, LinkConfig};

use crate::support::{seconds, two_with};

fn offering(extensions: Extensions) -> AssociationConfig {
    AssociationConfig { extensions, ..AssociationConfig::default() }
}

#[test]
fn only_what_both_ends_offer_is_used_and_both_know_it() {
    let [a, b] = [
        [Extension::Interleaving, Extension::StreamReconfiguration],
        [Extension::StreamReconfiguration, Extension::PartialReliability],
    ]
    .map(|list| offering(list.into_iter().collect()));
    let endpoint = EndpointConfig { association: b, ..EndpointConfig::default() };
    let mut t = two_with(1, LinkConfig::default(), endpoint);
    t.connect_with(a, Conversation::default());
    t.world.run_for(seconds(2));
    let expected = Extensions::NONE.with(Extension::StreamReconfiguration);
    for host in [t.a, t.b] {
        let info = t.world.host(host).endpoint.info(t.id(host)).expect("an association");
        assert_eq!(info.extensions, expected);
    }
}
