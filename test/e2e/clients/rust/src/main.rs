//! Watchers and reflectors of kube-rs, as its examples make them; the first argument chooses one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::WatchStreamExt;
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

type Error = Box<dyn std::error::Error>;
type State = BTreeMap<String, String>;

fn value(o: &ConfigMap) -> String {
    o.annotations().get("value").cloned().unwrap_or_default()
}

/// The state that follows from a watcher's events.
#[derive(Default)]
struct Followed {
    state: State,
    initial: State,
    synced: bool,
}

impl Followed {
    fn apply(&mut self, event: &Event<ConfigMap>) {
        match event {
            Event::Init => self.initial.clear(),
            Event::InitApply(o) => {
                self.initial.insert(o.name_any(), value(o));
            }
            Event::InitDone => {
                let initial = std::mem::take(&mut self.initial);
                let gone: Vec<_> = self.state.keys().filter(|name| !initial.contains_key(*name)).cloned().collect();
                gone.iter().for_each(|name| self.delete(name));
                initial.into_iter().for_each(|(name, value)| self.set(name, value));
                if !std::mem::replace(&mut self.synced, true) {
                    println!("{}", json!({"what": "synced"}));
                }
            }
            Event::Apply(o) => self.set(o.name_any(), value(o)),
            Event::Delete(o) => self.delete(&o.name_any()),
        }
    }

    fn set(&mut self, name: String, value: String) {
        let old = self.state.insert(name.clone(), value.clone());
        if old.as_ref() != Some(&value) {
            let what = if old.is_some() { "update" } else { "add" };
            println!("{}", json!({"what": what, "name": name, "value": value}));
        }
    }

    fn delete(&mut self, name: &str) {
        if self.state.remove(name).is_some() {
            println!("{}", json!({"what": "delete", "name": name}));
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, server, ca_file, token_file, namespace] = args.as_slice() else {
        return Err("want KIND SERVER CA-FILE TOKEN-FILE NAMESPACE".into());
    };
    let mut config = Config::new(server.parse()?);
    config.root_cert_file = Some(ca_file.into());
    config.auth_info.token_file = Some(token_file.clone());
    let api: Api<ConfigMap> = Api::namespaced(Client::try_from(config)?, namespace);

    let mut options = watcher::Config::default().labels("seen=true");
    if kind.ends_with("-streaming") {
        options = options.streaming_lists();
    }
    let followed = Arc::new(Mutex::new(Followed::default()));
    let follow = followed.clone();
    let (store, writer) = reflector::store();
    let events = watcher::watcher(api, options).default_backoff();
    let reflects = kind.starts_with("reflector");
    let events = if reflects { reflector::reflector(writer, events).left_stream() } else { events.right_stream() };
    let run = events
        .inspect_ok(move |event| follow.lock().unwrap().apply(event))
        .inspect_err(|error| eprintln!("{error}"))
        .for_each(|_| futures::future::ready(()));
    tokio::select! {
        () = run => Err("the watcher ended".into()),
        end = answer(|| if reflects { held(&store) } else { followed.lock().unwrap().state.clone() }) => end,
    }
}

fn held(store: &Store<ConfigMap>) -> State {
    store.state().iter().map(|o| (o.name_any(), value(o))).collect()
}

/// Answers each line of standard input with the state, and returns at its end.
async fn answer(state: impl Fn() -> State) -> Result<(), Error> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while lines.next_line().await?.is_some() {
        println!("{}", json!({"what": "state", "objects": state()}));
    }
    std::process::exit(0); // the thread that reads standard input does not end otherwise
}
