//! Differences between two protobuf files: every name, number and type.

use std::collections::{BTreeMap, BTreeSet};

use herald_protocol::grpc::DESCRIPTORS;
use prost::Message as _;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};

/// The file of a package, as reflection shows it.
pub(crate) fn ours(package: &str) -> FileDescriptorProto {
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap().file;
    files.into_iter().find(|file| file.package() == package).unwrap()
}

/// One line for each element that only one of the files has or that differs between them.
pub(crate) fn differences(ours: &FileDescriptorProto, theirs: &FileDescriptorProto) -> Vec<String> {
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
