//! The callbacks of the core, which call functions of the program.

use std::ffi::c_int;

use towline::btl::{
    Btl, Completed, Completion, Consumer, ErrorFlags, ErrorHandler, Failure as SendFailure, Received as CoreReceived,
    RmaCompleted, RmaCompletion, RmaFailure,
};
use towline::{AnyRail, Lost, Rail as _};

use crate::btl::active::{Loss, Received};
use crate::btl::handles::{DescriptorHandle, EndpointHandle};
use crate::btl::one_sided::{Done, DoneCall};
use crate::btl::sends::{Sent, SentCall};
use crate::btl::state::State;
use crate::error::Code;

impl Consumer<AnyRail> for State {
    #[inline]
    fn receive(&self, btl: &mut Btl<'_>, received: &CoreReceived<'_>) {
        let receiver = self.receivers.get(received.tag() as usize).and_then(|receiver| receiver.get());
        let Some((call, state)) = receiver else { return };
        let (endpoint, peer) = match received.endpoint() {
            Some(endpoint) => (self.endpoint(endpoint), self.peer(endpoint)),
            None => (EndpointHandle { bits: 0, btl: self.handle() }, std::ptr::null_mut()),
        };
        self.lent.lend(received.data(), |data| {
            let received =
                Received { endpoint, peer, data: data.as_ptr().cast(), length: data.len(), tag: received.tag() };
            // SAFETY: the program vouched for the function when it registered it.
            self.call_back(btl, || unsafe { call(&raw const received, state) });
        });
    }
}

impl Completed<AnyRail> for State {
    fn completed(&self, btl: &mut Btl<'_>, completion: Completion) {
        let Completion { endpoint, descriptor, status, order } = completion;
        let Some(own) = btl.properties(descriptor) else { return };
        let (call, state) = (own.cbdata, own.context);
        if call == 0 {
            return;
        }
        // SAFETY: `towline_btl_send` has stored a function of this type as a word.
        let call: SentCall = unsafe { std::mem::transmute::<usize, SentCall>(call) };
        let sent = Sent {
            descriptor: DescriptorHandle { bits: descriptor.to_bits(), btl: self.handle() },
            endpoint: self.endpoint(endpoint),
            peer: self.peer(endpoint),
            status: status.map_or_else(code_of_send, |()| 0),
            order,
        };
        // SAFETY: the program vouched for the function when it sent.
        self.call_back(btl, || unsafe { call(&raw const sent, state as *mut _) });
    }
}

impl RmaCompleted<AnyRail> for State {
    fn rma_completed(&self, btl: &mut Btl<'_>, completion: &RmaCompletion) {
        let [call, state] = completion.context;
        // SAFETY: `one_sided::params` has stored a function of this type as a word, and not 0.
        let call: DoneCall = unsafe { std::mem::transmute::<usize, DoneCall>(call) };
        let (status, value) = match completion.status {
            Ok(value) => (0, value),
            Err(failure) => (code_of_rma(failure), 0),
        };
        let endpoint = completion.endpoint;
        let done = Done { endpoint: self.endpoint(endpoint), peer: self.peer(endpoint), value, status };
        // SAFETY: the program vouched for the function when it began the operation.
        self.call_back(btl, || unsafe { call(&raw const done, state as *mut _) });
    }
}

impl ErrorHandler<AnyRail> for State {
    fn failed(&self, btl: &mut Btl<'_>, flags: ErrorFlags, number: Option<u32>, reason: Lost) {
        let Some((call, state)) = self.on_error.get() else { return };
        let text = std::ffi::CString::new(format!("{}: {reason}", btl.rail().attributes().name)).unwrap_or_default();
        let loss = Loss {
            number: number.unwrap_or(u32::MAX),
            flags: flags.bits() as u32,
            closed: reason == Lost::Closed,
            text: text.as_ptr(),
        };
        // SAFETY: the program vouched for the function when it registered it.
        self.call_back(btl, || unsafe { call(&raw const loss, state) });
    }
}

fn code_of_send(failure: SendFailure) -> c_int {
    let code = match failure {
        SendFailure::Lost => Code::TOWLINE_ERR_PEER_FAILED,
        SendFailure::Removed => Code::TOWLINE_ERR_CANCELLED,
        _ => Code::TOWLINE_ERR_OTHER,
    };
    code as c_int
}

fn code_of_rma(failure: RmaFailure) -> c_int {
    let code = match failure {
        RmaFailure::Lost => Code::TOWLINE_ERR_PEER_FAILED,
        RmaFailure::Removed => Code::TOWLINE_ERR_CANCELLED,
        RmaFailure::Denied(_) => Code::TOWLINE_ERR_DENIED,
        _ => Code::TOWLINE_ERR_OTHER,
    };
    code as c_int
}
