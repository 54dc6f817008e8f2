//! Check of the comparison in `difference.rs`: it reports each kind of change.

use prost_types::{
    DescriptorProto, FileDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

use crate::difference::{differences, ours};

/// A change of one element of a file.
type Change = fn(&mut FileDescriptorProto);

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
