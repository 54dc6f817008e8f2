//! The compiled protobuf files beside those of the official Python SDKs: every name, number and type.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::PathBuf,
    process::{Command, Stdio},
};

use herald_protocol::grpc::DESCRIPTORS;
use prost::Message as _;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

/// A change of one element of a file.
type Change = fn(&mut FileDescriptorProto);

/// Prints the serialized file that a module of an SDK was generated from.
const PRINT: &str = "import importlib, sys
module = importlib.import_module(sys.argv[1])
sys.stdout.buffer.write(module.DESCRIPTOR.serialized_pb)";

#[test]
fn the_official_sdk_1_x_has_the_same_messages() {
    assert_same(&ours("lf.a2a.v1"), &official("python1", "a2a.types.a2a_pb2"));
}

#[test]
fn the_official_sdk_0_3_has_the_same_messages() {
    assert_same(&ours("a2a.v1"), &official("python03", "a2a.grpc.a2a_pb2"));
}

/// Every kind of change, made to our own file: the comparison must not overlook it.
#[test]
fn a_changed_name_or_number_is_found() {
    let changes: [(&str, Change); 13] = [
        ("", |file| file.package = Some("a2a.v2".to_owned())),
        ("Task", |file| message(file, "Task").name = Some("Job".to_owned())),
        ("Task.id", |file| message(file, "Task").field[0].number = Some(9)),
        ("Task.id", |file| message(file, "Task").field[0].name = Some("key".to_owned())),
        ("Task.id", |file| message(file, "Task").field[0].json_name = Some("ID".to_owned())),
        ("Task.id", |file| message(file, "Task").field[0].set_type(Type::Bytes)),
        ("Task.id", |file| message(file, "Task").field[0].set_label(Label::Repeated)),
        ("Part.text", |file| message(file, "Part").field[0].oneof_index = None),
        ("Part.content", |file| message(file, "Part").oneof_decl[0].name = Some("c".to_owned())),
        ("SecurityRequirement.SchemesEntry.key", |file| {
            message(file, "SecurityRequirement").nested_type[0].field[0].number = Some(3);
        }),
        ("Role.ROLE_USER", |file| {
            let role = file.enum_type.iter_mut().find(|found| found.name() == "Role").unwrap();
            role.value[1].number = Some(7);
        }),
        ("A2AService.SendMessage", |file| {
            file.service[0].method[0].output_type = Some(".lf.a2a.v1.Task".to_owned());
        }),
        ("A2AService.SendMessage", |file| {
            file.service[0].method[0].server_streaming = Some(true);
        }),
    ];
    let file = ours("lf.a2a.v1");
    assert_eq!(differences(&file, &file), [""; 0]);
    for (name, change) in changes {
        let mut changed = file.clone();
        change(&mut changed);
        let found = differences(&file, &changed);
        assert!(
            found.iter().any(|line| line.starts_with(&format!("{name}: "))),
            "{name}: {found:?}"
        );
    }
}

fn message<'a>(file: &'a mut FileDescriptorProto, name: &str) -> &'a mut DescriptorProto {
    file.message_type.iter_mut().find(|message| message.name() == name).unwrap()
}

fn ours(package: &str) -> FileDescriptorProto {
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap().file;
    files.into_iter().find(|file| file.package() == package).unwrap()
}

fn official(sdk: &str, module: &str) -> FileDescriptorProto {
    let installed = env::var_os("HERALD_TEST_CLIENTS");
    let installed = installed.expect("the official SDKs are not installed; run `cargo xtask test`");
    let python = PathBuf::from(installed).join(sdk).join("bin/python");
    let output = Command::new(python).args(["-c", PRINT, module]).stdin(Stdio::null()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{sdk}: {}", String::from_utf8_lossy(&output.stderr));
    FileDescriptorProto::decode(&*output.stdout).unwrap()
}

fn assert_same(ours: &FileDescriptorProto, official: &FileDescriptorProto) {
    let found = differences(ours, official);
    assert!(found.is_empty(), "ours differs from the official file:\n{}", found.join("\n"));
}

/// One line for each element that only one of the files has or that differs between them.
fn differences(ours: &FileDescriptorProto, theirs: &FileDescriptorProto) -> Vec<String> {
    let (ours, theirs) = (elements(ours), elements(theirs));
    let names: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let differing = names.into_iter().filter(|&name| ours.get(name) != theirs.get(name));
    differing
        .map(|name| format!("{name}: ours {:?}, theirs {:?}", ours.get(name), theirs.get(name)))
        .collect()
}

/// Everything in a file by its name, in no order. The file itself has the empty name.
///
/// An element is described without those inside it, and without `google.api` annotations: they are extensions that the
/// reader does not know, so it drops them.
fn elements(file: &FileDescriptorProto) -> BTreeMap<String, String> {
    let mut elements = BTreeMap::new();
    for message in &file.message_type {
        add_message(message, "", &mut elements);
    }
    for kind in &file.enum_type {
        add_enum(kind, "", &mut elements);
    }
    for service in &file.service {
        add_service(service, &mut elements);
    }
    let mut file = FileDescriptorProto {
        message_type: Vec::new(),
        enum_type: Vec::new(),
        service: Vec::new(),
        // Ours has the path that its package asks for; an SDK has a path of its own.
        name: None,
        // Package names for the code generators of other languages.
        options: None,
        ..file.clone()
    };
    // Only annotations need these, and ours has none.
    file.dependency.retain(|path| !path.starts_with("google/api/"));
    file.dependency.sort();
    add(&mut elements, String::new(), &file);
    elements
}

fn add_message(message: &DescriptorProto, within: &str, elements: &mut BTreeMap<String, String>) {
    let name = format!("{within}{}", message.name());
    let inside = format!("{name}.");
    for field in &message.field {
        let mut field = field.clone();
        // The index depends on the order of the declarations, the name does not.
        let index = field.oneof_index.take().map(|index| usize::try_from(index).unwrap());
        let oneof = index.map(|index| message.oneof_decl[index].name());
        field.options = field.options.take().filter(|options| *options != Default::default());
        add(elements, format!("{inside}{}", field.name()), &(&field, oneof));
    }
    for oneof in &message.oneof_decl {
        add(elements, format!("{inside}{}", oneof.name()), oneof);
    }
    for nested in &message.nested_type {
        add_message(nested, &inside, elements);
    }
    for kind in &message.enum_type {
        add_enum(kind, &inside, elements);
    }
    let message = DescriptorProto {
        field: Vec::new(),
        oneof_decl: Vec::new(),
        nested_type: Vec::new(),
        enum_type: Vec::new(),
        ..message.clone()
    };
    add(elements, name, &message);
}

fn add_enum(kind: &EnumDescriptorProto, within: &str, elements: &mut BTreeMap<String, String>) {
    let name = format!("{within}{}", kind.name());
    for value in &kind.value {
        add(elements, format!("{name}.{}", value.name()), value);
    }
    add(elements, name, &EnumDescriptorProto { value: Vec::new(), ..kind.clone() });
}

fn add_service(service: &ServiceDescriptorProto, elements: &mut BTreeMap<String, String>) {
    for method in &service.method {
        let mut method = method.clone();
        method.options = method.options.take().filter(|options| *options != Default::default());
        add(elements, format!("{}.{}", service.name(), method.name()), &method);
    }
    let bare = ServiceDescriptorProto { method: Vec::new(), ..service.clone() };
    add(elements, service.name().to_owned(), &bare);
}

fn add(elements: &mut BTreeMap<String, String>, name: String, element: &dyn std::fmt::Debug) {
    let previous = elements.insert(name, format!("{element:?}"));
    assert_eq!(previous, None, "two elements have one name");
}
