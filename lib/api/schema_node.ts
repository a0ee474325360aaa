/**
 * How modules that derive from a schema read it: its values as {@linkcode SchemaNode}s, and notes.
 *
 * @module
 */
import * as v from "valibot";

/** The notes of a schema besides the shape of a value. */
export interface SchemaNotes {
  /** Names of objects and ports become parts of rules: dumps check them more strictly than other text. */
  readonly format?: TextFormat;
  /** Many objects have the same value: it is kept in memory once. */
  readonly isShared?: true;
  /** Fields that the API has and kube-relay does not read, separated by spaces; `*` = any. */
  readonly unread?: string;
  /** An empty object is not an absent one, and names of fields that the schema does not know are kept. */
  readonly isGuarded?: true;
  /** The names of a map that are read; the others are dropped. */
  readonly names?: readonly string[] | "all";
  /** Those of {@linkcode names} that no dump may hold. */
  readonly secret?: readonly string[];
  /** The number of the field in protobuf. */
  readonly fieldNumber?: number;
  /** Empty text, 0 or false is a value of the field, and not its absence. */
  readonly keepsZero?: true;
}

/** How text is checked in a dump, or encoded in protobuf: times are numbers there. */
type TextFormat = "name" | "port name" | "time" | "micro time";

/** One value of a schema, for modules that derive from it. */
export type SchemaNode =
  | {
    readonly type: "text";
    readonly isShared: boolean;
    readonly format: SchemaNotes["format"];
  }
  | { readonly type: "number" | "flag" | "number or text" }
  | { readonly type: "list"; readonly item: v.GenericSchema; readonly isShared: boolean }
  | {
    readonly type: "names";
    readonly names: readonly string[] | "all";
    readonly secret: readonly string[];
  }
  | {
    readonly type: "fields";
    readonly entries: Readonly<Record<string, v.GenericSchema>>;
    readonly unread: readonly string[];
    readonly isOpen: boolean;
    readonly isGuarded: boolean;
  };

/** The parts of a schema of valibot, or of a later step of one, that are read. */
interface Parts extends v.GenericSchema {
  readonly pipe?: readonly Parts[];
  readonly wrapped?: v.GenericSchema;
  readonly default?: unknown;
  readonly item?: v.GenericSchema;
  readonly entries?: Readonly<Record<string, v.GenericSchema>>;
  readonly metadata?: SchemaNotes;
}

/** A value of an object as its field holds it. */
interface SchemaField extends Pick<SchemaNotes, "fieldNumber" | "keepsZero"> {
  readonly node: SchemaNode;
  readonly isOptional: boolean;
  /** The value of an absent field. */
  readonly fallback: unknown;
}

/** The value that a schema describes, and whether it may be absent. */
export function schemaNode(schema: v.GenericSchema): SchemaField {
  const { type, wrapped, default: fallback, pipe = [] } = schema as Parts;
  const { fieldNumber, keepsZero } =
    pipe.find(({ metadata }) => metadata?.fieldNumber !== undefined)?.metadata ?? {};
  const wire = {
    ...(fieldNumber !== undefined && { fieldNumber }),
    ...(keepsZero && { keepsZero }),
  };
  if (type !== "nullish") {
    return { node: nodeOf(schema as Parts), isOptional: false, fallback: undefined, ...wire };
  }
  return { node: nodeOf(wrapped as Parts), isOptional: true, fallback, ...wire };
}

/** Whether objects can be read in protobuf: their fields have numbers. */
export function hasFieldNumbers(schema: v.GenericSchema): boolean {
  const { node } = schemaNode(schema);
  return node.type === "fields" &&
    Object.values(node.entries).every((entry) => schemaNode(entry).fieldNumber !== undefined);
}

/** Schemas never change, and each field of each manifest asks. */
const nodes = new WeakMap<Parts, SchemaNode>();

function nodeOf(schema: Parts): SchemaNode {
  const known = nodes.get(schema);
  if (known !== undefined) return known;
  const node = readNode(schema);
  nodes.set(schema, node);
  return node;
}

function readNode(schema: Parts): SchemaNode {
  const steps = stepsOf(schema);
  const found: SchemaNotes = Object.assign({}, ...steps.map(({ metadata }) => metadata));
  const { type, item, entries } = steps.findLast(({ kind }) => kind === "schema")!;
  switch (type) {
    case "string":
      return { type: "text", isShared: found.isShared ?? false, format: found.format };
    case "picklist":
      return { type: "text", isShared: true, format: undefined };
    case "number":
      return { type: "number" };
    case "boolean":
      return { type: "flag" };
    case "array":
      return { type: "list", item: item!, isShared: found.isShared ?? false };
    case "record":
      return { type: "names", names: found.names ?? [], secret: found.secret ?? [] };
    case "union":
      return { type: "number or text" };
    case "object":
    case "loose_object": {
      const { unread = "", isGuarded = false } = found;
      const isOpen = unread === "*";
      const names = isOpen ? [] : unread.match(/\S+/g) ?? [];
      return { type: "fields", entries: entries!, unread: names, isOpen, isGuarded };
    }
    default:
      throw new TypeError(`Cannot derive anything from a schema of type '${type}'`);
  }
}

/** The schema of a value and what follows it. */
function stepsOf(schema: Parts): readonly Parts[] {
  // The first step of a pipe may be a pipe.
  return schema.pipe?.flatMap(stepsOf) ?? [schema];
}

/** A step of a schema that only carries notes. */
export function notes<Input>(
  found: SchemaNotes,
): v.MetadataAction<Input, Readonly<Record<string, unknown>>> {
  return v.metadata({ ...found });
}
