//! The one file with `unsafe`: what `rdkafka` does not reach. The generation of a group member
//! (the fence of design 1), header names as bytes (a stranger's name need not be UTF-8, and the
//! wrapper panics on one that is not), producing by topic handle with such headers,
//! and a flush that wakes in time.
#![expect(unsafe_code, reason = "librdkafka calls without a safe wrapper; each block says why")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use rdkafka::bindings as rd;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::BorrowedHeaders;
use rdkafka::types::RDKafkaRespErr;

/// A consumer's membership of its group at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    /// Generation of the group; negative outside of it.
    pub(crate) generation: i32,
    /// The id that the coordinator gave; after a loss its absence is the only sign.
    pub(crate) member_id: Option<String>,
}

impl Membership {
    /// Whether a transaction may carry this membership (the broker accepts one outside of the group
    /// unfenced), and whether it is the one under which `member_id` was given its partitions.
    pub(crate) fn is_of(&self, member_id: Option<&str>) -> bool {
        self.generation >= 0 && self.member_id.is_some() && self.member_id.as_deref() == member_id
    }
}

/// Reads the membership of the consumer behind `client`, which must be a live consumer handle.
pub(crate) fn membership(client: *mut rd::rd_kafka_t) -> Membership {
    // SAFETY: `client` is a live handle (its owner calls this); the metadata object is ours until
    // destroyed, and the member id points into it, so it is read before.
    unsafe {
        let metadata = rd::rd_kafka_consumer_group_metadata(client);
        if metadata.is_null() {
            return Membership { generation: -1, member_id: None };
        }
        let member = rd::rd_kafka_consumer_group_metadata_member_id(metadata);
        let member_id = (!member.is_null() && *member != 0)
            .then(|| CStr::from_ptr(member).to_string_lossy().into_owned());
        let generation = rd::rd_kafka_consumer_group_metadata_generation_id(metadata);
        rd::rd_kafka_consumer_group_metadata_destroy(metadata);
        Membership { generation, member_id }
    }
}

/// Appends all headers of a record, names as bytes, in order.
pub(crate) fn read_headers<'a>(
    headers: &'a BorrowedHeaders,
    into: &mut Vec<(&'a [u8], Option<&'a [u8]>)>,
) {
    // `BorrowedHeaders` is the address of librdkafka's list, nothing else.
    let list = ptr::from_ref(headers).cast::<rd::rd_kafka_headers_t>();
    for index in 0.. {
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0usize);
        // SAFETY: `list` lives as long as the message that `headers` borrows from; the out
        // pointers are valid for writes.
        let error = unsafe {
            rd::rd_kafka_header_get_all(list, index, &raw mut name, &raw mut value, &raw mut size)
        };
        if error != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return;
        }
        // SAFETY: a name is a NUL-terminated string inside the list, a value `size` bytes inside
        // it; both live as long as the list, that is `'a`.
        let (name, value) = unsafe {
            let name: &'a [u8] = CStr::from_ptr(name).to_bytes();
            let value = (!value.is_null())
                .then(|| std::slice::from_raw_parts::<'a, u8>(value.cast(), size));
            (name, value)
        };
        into.push((name, value));
    }
}

/// A producer's handle of one topic: spares the look-up by name with every record.
pub(crate) struct TopicHandle {
    topic: *mut rd::rd_kafka_topic_t,
}

// SAFETY: librdkafka's topic objects are reference counted and may be used from any thread.
unsafe impl Send for TopicHandle {}

impl TopicHandle {
    /// The handle of `name` on the producer behind `client`; `None` when the name is no topic
    /// name. It must be dropped before the producer.
    pub(crate) fn new(client: *mut rd::rd_kafka_t, name: &str) -> Option<Self> {
        let name = CString::new(name).ok()?;
        // SAFETY: `client` is a live producer handle; a null configuration means the default.
        let topic = unsafe { rd::rd_kafka_topic_new(client, name.as_ptr(), ptr::null_mut()) };
        (!topic.is_null()).then_some(Self { topic })
    }
}

impl Drop for TopicHandle {
    fn drop(&mut self) {
        // SAFETY: the handle came from `rd_kafka_topic_new` and is destroyed once.
        unsafe { rd::rd_kafka_topic_destroy(self.topic) }
    }
}

/// One record to produce.
pub(crate) struct Produce<'a> {
    pub(crate) partition: i32,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

/// Hands a record to the producer behind `client`; everything is copied.
///
/// # Errors
/// librdkafka's code; `QueueFull` means poll and try again.
pub(crate) fn produce(
    client: *mut rd::rd_kafka_t,
    topic: &TopicHandle,
    record: &Produce<'_>,
) -> Result<(), RDKafkaErrorCode> {
    let headers = header_list(record.headers);
    let vus = [
        vu(rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_RKT, Union { rkt: topic.topic }),
        vu(rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_PARTITION, Union { i32_: record.partition }),
        vu(rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_MSGFLAGS, Union { i: rd::RD_KAFKA_MSG_F_COPY }),
        vu(rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_VALUE, Union { mem: memory(record.value) }),
        vu(rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_KEY, Union { mem: memory(record.key) }),
        vu(rd::rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADERS, Union { headers }),
    ];
    // SAFETY: the array lives for the call; key and value are copied (`MSG_F_COPY`); the headers
    // pass to the producer on success and are destroyed here on failure; the error object is ours.
    unsafe {
        let error = rd::rd_kafka_produceva(client, vus.as_ptr(), vus.len());
        if error.is_null() {
            return Ok(());
        }
        rd::rd_kafka_headers_destroy(headers);
        let code = rd::rd_kafka_error_code(error);
        rd::rd_kafka_error_destroy(error);
        Err(code.into())
    }
}

/// Waits until everything that the producer behind `client` sent is acknowledged or failed, at most
/// so long. The wrapper's own flush sleeps 100 ms at a time, and its poll spins for the last
/// millisecond; this wakes when the last acknowledgement comes. Answers whether nothing is left.
pub(crate) fn flush(client: *mut rd::rd_kafka_t, at_most_ms: i32) -> bool {
    // SAFETY: `client` is a live producer handle.
    let error = unsafe { rd::rd_kafka_flush(client, at_most_ms) };
    error == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR
}

type Union = rd::rd_kafka_vu_s__bindgen_ty_1;

fn vu(vtype: rd::rd_kafka_vtype_t, u: Union) -> rd::rd_kafka_vu_t {
    rd::rd_kafka_vu_t { vtype, u }
}

fn memory(bytes: Option<&[u8]>) -> rd::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 {
    // An empty slice has a dangling but non-null pointer: an empty value, not a missing one.
    let (ptr, size) = bytes.map_or((ptr::null(), 0), |bytes| (bytes.as_ptr(), bytes.len()));
    rd::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr: ptr.cast_mut().cast::<c_void>(), size }
}

fn header_list(headers: &[(&[u8], Option<&[u8]>)]) -> *mut rd::rd_kafka_headers_t {
    // SAFETY: a new list is ours; names and values are copied by `rd_kafka_header_add`, whose
    // sizes are those of the slices (an allocation never exceeds `isize::MAX` bytes).
    unsafe {
        let list = rd::rd_kafka_headers_new(headers.len());
        for (name, value) in headers {
            let (data, size) = value.map_or((ptr::null(), 0), |v| (v.as_ptr(), v.len()));
            rd::rd_kafka_header_add(
                list,
                name.as_ptr().cast::<c_char>(),
                name.len().cast_signed(),
                data.cast::<c_void>(),
                size.cast_signed(),
            );
        }
        list
    }
}
