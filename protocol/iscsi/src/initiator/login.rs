//! The initiator's side of login.

use crate::auth::{ChapAlgorithm, decode_binary, encode_hex};
use crate::login::Operational;
use crate::names::{Cid, Isid, Tsih};
use crate::pdu::{Frame, Itt, LoginRequest, LoginResponse, Outgoing, Stage};
use crate::serial::Sn;
use crate::text::{TextWriter, parse_text};
use bytes::Bytes;

/// Parameters of an initiator's login.
#[derive(Clone, Debug)]
pub struct LoginScript {
    /// ISID.
    pub isid: Isid,
    /// TSIH: 0 for a new session.
    pub tsih: Tsih,
    /// CID.
    pub cid: Cid,
    /// First CmdSN.
    pub cmd_sn: Sn,
    /// Keys of the first request, in the security stage.
    pub identity: Vec<(String, String)>,
    /// Keys of the operational stage.
    pub operational: Vec<(String, String)>,
    /// CHAP name and secret, and the algorithm to offer.
    pub chap: Option<(String, Vec<u8>, ChapAlgorithm)>,
    /// The target's secret, for mutual CHAP.
    pub mutual: Option<Vec<u8>>,
}

/// A finished login, as the initiator sees it.
#[derive(Clone, Debug)]
pub struct LoginOutcome {
    /// Status-Class and Status-Detail.
    pub status: (u8, u8),
    /// TSIH.
    pub tsih: Tsih,
    /// Negotiated parameters.
    pub params: Operational,
    /// CmdSN of the first command.
    pub cmd_sn: Sn,
    /// ExpCmdSN of the last response.
    pub exp_cmd_sn: Sn,
    /// MaxCmdSN.
    pub max_cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    /// Every key the target sent.
    pub answers: Vec<(String, String)>,
}

impl LoginScript {
    /// A normal login of `initiator` to `target`, without authentication.
    #[must_use]
    pub fn normal(initiator: &str, target: &str) -> Self {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Self {
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            tsih: Tsih(0),
            cid: Cid(0),
            cmd_sn: Sn(1),
            identity: vec![
                pair("InitiatorName", initiator),
                pair("TargetName", target),
                pair("SessionType", "Normal"),
                pair("AuthMethod", "CHAP,None"),
            ],
            operational: Vec::new(),
            chap: None,
            mutual: None,
        }
    }

    /// A discovery login of `initiator`.
    #[must_use]
    pub fn discovery(initiator: &str) -> Self {
        let mut script = Self::normal(initiator, "");
        script.identity.retain(|(key, _)| key != "TargetName" && key != "SessionType");
        script.identity.push(("SessionType".into(), "Discovery".into()));
        script
    }

    /// Adds an operational key.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.operational.push((key.into(), value.into()));
        self
    }

    /// Runs the login: `exchange` sends one request to the target and returns
    /// the response, or `None` if the connection is closed.
    pub fn run(&self, mut exchange: impl FnMut(Outgoing) -> Option<Frame>) -> Option<LoginOutcome> {
        let mut run = Run { script: self, answers: Vec::new(), exp_stat_sn: Sn(0), last: None };
        let mut text = TextWriter::default();
        self.identity.iter().for_each(|(key, value)| text.push(key, value));
        let open = self.chap.is_none();
        let next = open.then_some(Stage::Operational);
        let mut response = run.send(Stage::Security, next, text.take(), &mut exchange)?;
        if let Some((name, secret, algorithm)) =
            self.chap.as_ref().filter(|_| response.status.0 == 0)
        {
            let mut text = TextWriter::default();
            text.push("CHAP_A", &algorithm.number().to_string());
            response = run.send(Stage::Security, None, text.take(), &mut exchange)?;
            if response.status.0 == 0 {
                let identifier = run.answer("CHAP_I")?.parse().ok()?;
                let challenge = decode_binary(&run.answer("CHAP_C")?)?;
                text.push("CHAP_N", name);
                text.push(
                    "CHAP_R",
                    &encode_hex(&algorithm.response(identifier, secret, &challenge)),
                );
                if self.mutual.is_some() {
                    text.push("CHAP_I", "7");
                    text.push("CHAP_C", "0x0102030405060708");
                }
                response = run.send(
                    Stage::Security,
                    Some(Stage::Operational),
                    text.take(),
                    &mut exchange,
                )?;
                if let Some(secret) = self.mutual.as_ref().filter(|_| response.status.0 == 0) {
                    let proof =
                        encode_hex(&algorithm.response(7, secret, &[1, 2, 3, 4, 5, 6, 7, 8]));
                    if run.answers.iter().rev().find(|(key, _)| key == "CHAP_R")?.1 != proof {
                        return None;
                    }
                }
            }
        }
        if response.status.0 == 0 {
            let mut text = TextWriter::default();
            self.operational.iter().for_each(|(key, value)| text.push(key, value));
            response =
                run.send(Stage::Operational, Some(Stage::FullFeature), text.take(), &mut exchange)?;
        }
        Some(run.outcome(response))
    }
}

struct Run<'a> {
    script: &'a LoginScript,
    answers: Vec<(String, String)>,
    exp_stat_sn: Sn,
    last: Option<LoginResponse>,
}

impl Run<'_> {
    fn send(
        &mut self,
        current: Stage,
        transit: Option<Stage>,
        text: Bytes,
        exchange: &mut impl FnMut(Outgoing) -> Option<Frame>,
    ) -> Option<LoginResponse> {
        let script = self.script;
        let request = LoginRequest {
            continues: false,
            current,
            transit,
            version_max: 0,
            version_min: 0,
            isid: script.isid,
            tsih: script.tsih,
            itt: Itt(0),
            cid: script.cid,
            cmd_sn: script.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        let frame = exchange(request.encode(text))?;
        let response = LoginResponse::parse(&frame.bhs).ok()?;
        self.exp_stat_sn = response.stat_sn.next();
        let text = frame.contiguous_data();
        let pairs = parse_text(&text).ok()?;
        self.answers
            .extend(pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
        self.last = Some(response);
        Some(response)
    }

    fn answer(&self, key: &str) -> Option<String> {
        self.answers.iter().find(|(k, _)| k == key).map(|(_, value)| value.clone())
    }

    fn outcome(self, response: LoginResponse) -> LoginOutcome {
        let mut params = Operational::default();
        for (key, value) in &self.answers {
            let number = value.parse().unwrap_or(0);
            match key.as_str() {
                "HeaderDigest" => params.header_digest = value == "CRC32C",
                "DataDigest" => params.data_digest = value == "CRC32C",
                "InitialR2T" => params.initial_r2t = value == "Yes",
                "ImmediateData" => params.immediate_data = value == "Yes",
                "MaxBurstLength" => params.max_burst_bytes = number,
                "FirstBurstLength" => params.first_burst_bytes = number,
                "MaxOutstandingR2T" => params.max_outstanding_r2t = number,
                "ErrorRecoveryLevel" => params.error_recovery_level = number,
                "MaxConnections" => params.max_connections = number,
                "MaxRecvDataSegmentLength" => params.target_recv_bytes = number,
                _ => {}
            }
        }
        LoginOutcome {
            status: response.status,
            tsih: response.tsih,
            params,
            cmd_sn: self.script.cmd_sn,
            exp_cmd_sn: response.exp_cmd_sn,
            max_cmd_sn: response.max_cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            answers: self.answers,
        }
    }
}
