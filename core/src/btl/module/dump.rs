//! The state of a module, for diagnosis.

use core::fmt;

use super::state::Btl;
use super::types::Counters;
use crate::btl::endpoint::{EndpointId, EndpointState};
use crate::rail::FullRail;

/// The state of a module as one line of JSON. Later versions keep the keys, and may add more.
#[derive(Debug)]
pub struct Dump<'b, 'm, R: FullRail> {
    pub(super) btl: &'b Btl<'m, R>,
    pub(super) endpoint: Option<EndpointId>,
    pub(super) verbose: bool,
}

impl<R: FullRail> fmt::Display for Dump<'_, '_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let btl = self.btl;
        write!(f, "{{\"rail\":\"{}\"", btl.rail.attributes().name)?;
        if let Some(endpoint) = self.endpoint {
            match btl.endpoints.get(endpoint.0) {
                None => f.write_str(",\"endpoint\":null")?,
                Some(EndpointState { proc, waiting, lost, .. }) => {
                    write!(f, ",\"endpoint\":{{\"proc\":{proc},\"waiting\":{waiting},\"lost\":{lost}}}")?;
                }
            }
        }
        let descriptors = &btl.descriptors;
        write!(
            f,
            ",\"endpoints\":[{},{}],\"descriptors\":[{},{}],\"sends\":[{},{}]",
            btl.endpoints.used(),
            btl.endpoints.capacity(),
            descriptors.used(),
            descriptors.capacity(),
            btl.sends.used(),
            btl.sends.capacity(),
        )?;
        let [regions, operations, answers] = btl.rma.used();
        for (name, [used, of]) in [("regions", regions), ("operations", operations), ("answers", answers)] {
            write!(f, ",\"{name}\":[{used},{of}]")?;
        }
        if self.verbose {
            let Counters { received, sent, completed, unregistered, oversize } = btl.counters;
            write!(
                f,
                ",\"most_descriptors\":{},\"pending\":{},\"finished\":{},\"received\":{received},\"sent\":{sent},\
                 \"completed\":{completed},\"unregistered\":{unregistered},\"oversize\":{oversize}",
                descriptors.most_used(),
                btl.pending.len(),
                btl.finished.len(),
            )?;
        }
        f.write_str("}")
    }
}
