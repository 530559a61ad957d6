//! Runs Kamailio as a SIP proxy for comparison with this project's SIP proxy. Kamailio gets the minimal
//! configuration of a stateful proxy. Kamailio's registrar keeps bindings in memory.

use crate::Host;
use anyhow::{Context, Result};
use std::process::Command;

/// Name of Kamailio's program.
pub const PROGRAM: &str = "kamailio";
/// Location of Kamailio's modules in Debian.
const MODULES: &str = "/usr/lib/x86_64-linux-gnu/kamailio/modules/";

/// Returns the command that runs Kamailio in the foreground, on port 5060 of an address of `host`. One worker
/// of Kamailio serves UDP, and one serves TCP.
///
/// # Errors
/// When the configuration cannot be written.
pub fn command(host: &Host, address: &str) -> Result<Command> {
    let dir = host.dir()?;
    let path = dir.join("kamailio.cfg");
    std::fs::write(&path, configuration(address))
        .with_context(|| format!("cannot write {}", path.display()))?;
    let mut command = host.command(PROGRAM);
    command.args(["-DD", "-E", "-m", "256", "-M", "16", "-f"]).arg(&path);
    command.arg("-P").arg(dir.join("kamailio.pid")).arg("-Y").arg(dir);
    Ok(command)
}

/// Returns the configuration: transactions, Record-Route, and a registrar in memory.
fn configuration(address: &str) -> String {
    let modules = ["tm", "sl", "rr", "pv", "maxfwd", "usrloc", "registrar", "textops", "siputils"];
    let modules: String = modules.iter().map(|name| format!("loadmodule \"{name}.so\"\n")).collect();
    format!(
        r#"#!KAMAILIO
debug=0
log_stderror=yes
children=1
tcp_children=1
auto_aliases=no
dns=no
rev_dns=no
listen=udp:{address}:5060
listen=tcp:{address}:5060
mpath="{MODULES}"
{modules}modparam("usrloc", "db_mode", 0)
modparam("usrloc", "hash_size", 14)
request_route {{
    if (!mf_process_maxfwd_header("70")) {{ sl_send_reply("483", "Too Many Hops"); exit; }}
    if (is_method("CANCEL")) {{ if (t_check_trans()) t_relay(); exit; }}
    if (has_totag()) {{
        if (loose_route()) {{ t_relay(); exit; }}
        if (is_method("ACK")) {{ if (t_check_trans()) t_relay(); exit; }}
        sl_send_reply("404", "Not here");
        exit;
    }}
    t_check_trans();
    if (is_method("REGISTER")) {{ save("location"); exit; }}
    if (is_method("INVITE")) record_route();
    if (!lookup("location")) {{ sl_send_reply("404", "Not Found"); exit; }}
    t_relay();
}}
"#
    )
}
