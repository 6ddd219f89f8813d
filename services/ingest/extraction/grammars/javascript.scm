; What JavaScript has besides what it shares with TypeScript (ecmascript.scm).
(field_definition property: (_) @name value: [(arrow_function) (function_expression)]) @definition.method
(class_heritage (identifier) @name) @reference.inherit
(class_heritage (member_expression property: (_) @name)) @reference.inherit
