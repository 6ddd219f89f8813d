(comment) @comment
(marginalia) @comment

(create_table (object_reference) @name) @definition.table
(create_view (object_reference) @name) @definition.view
(create_materialized_view (object_reference) @name) @definition.view
(create_function (object_reference) @name) @definition.procedure
(create_trigger . (keyword_create) (_)* (keyword_trigger) . (object_reference) @name) @definition.procedure
(create_type (object_reference) @name) @definition.type
(create_index column: (_) @name) @definition.constant
