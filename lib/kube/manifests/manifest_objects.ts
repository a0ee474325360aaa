/**
 * Reads the documents of a manifest file as objects of an API server.
 *
 * @module
 */
import { apiVersionsOf, type KindSpec } from "../../api/kind.ts";
import { MAX_PLAIN_LENGTH, type YamlDocument } from "../../config/yaml_source.ts";
import { nearestName } from "../../api/nearest_name.ts";
import {
  isMapping,
  type ManifestObject,
  type ManifestObjectId,
  rawObjectId,
  readManifestObject,
  readPartialObject,
} from "./manifest_object.ts";
import type { FieldPath, ManifestProblems } from "./manifest_problem.ts";
import { ObjectReport } from "./manifest_report.ts";
import type { StringTable } from "../string_table.ts";

/** The result of one object of a document. */
export type ManifestOutcome =
  | { readonly outcome: "read"; readonly entry: ManifestObject }
  /** Invalid; without an id, its name could not be read. */
  | {
    readonly outcome: "refused";
    readonly id: ManifestObjectId | undefined;
    /** The object without its invalid fields, of a kind whose absence would open something. */
    readonly rest?: ManifestObject | undefined;
  }
  | { readonly outcome: "ignored"; readonly kind: string };

/** The fields that an item inherits from its list. */
export interface ManifestType {
  readonly apiVersion?: string;
  readonly kind?: string;
}

/** Inputs of {@linkcode readManifestObjects} besides the document. */
interface ManifestReading {
  readonly problems: ManifestProblems;
  readonly strings: StringTable;
  /** The kinds to read, by name. */
  readonly kinds: ReadonlyMap<string, KindSpec>;
  /** Type of an item of a split list. */
  readonly itemOf?: ManifestType;
}

/** Deepest nesting of lists, which no real file needs. */
const DEEPEST_LIST = 3;

/**
 * Reads the objects of a document: one, or those of a list. Reports and refuses objects with
 * errors.
 */
export function readManifestObjects(
  document: YamlDocument,
  reading: ManifestReading,
): readonly ManifestOutcome[] {
  // Documents that are empty or contain only comments.
  if (document.value === null || document.value === undefined) return [];
  const outcomes: ManifestOutcome[] = [];
  collect({ document, reading, outcomes }, {
    value: document.value,
    root: [],
    ...inherit(reading),
  });
  return outcomes;
}

/** Returns the item type of a list; `undefined` if `value` is not a list. */
export function itemTypeOf(value: unknown): ManifestType | undefined {
  const { kind, apiVersion } = typeOf(value);
  if (kind === undefined || !kind.endsWith("List") || !isMapping(value)) return undefined;
  const { items } = value;
  if (items !== undefined && items !== null && !Array.isArray(items)) return undefined;
  if (kind === "List") return {};
  return { kind: kind.slice(0, -"List".length), ...(apiVersion !== undefined && { apiVersion }) };
}

/**
 * Returns the kind of a YAML text if it is an ignored one; `undefined` if the text must be parsed.
 */
export function ignoredKindOf(
  text: string,
  kinds: ReadonlyMap<string, KindSpec>,
): string | undefined {
  const kind = /^kind: *["']?(\w+)["']?[ \r]*$/m.exec(text.slice(0, MAX_PLAIN_LENGTH))?.[1];
  return kind === undefined || kind.endsWith("List") || kinds.has(kind) ? undefined : kind;
}

interface Collecting {
  readonly document: YamlDocument;
  readonly reading: ManifestReading;
  readonly outcomes: ManifestOutcome[];
}

interface Found {
  readonly value: unknown;
  readonly root: FieldPath;
  readonly type: ManifestType;
  readonly depth: number;
}

function inherit({ itemOf }: ManifestReading): { type: ManifestType; depth: number } {
  return { type: itemOf ?? {}, depth: itemOf ? 1 : 0 };
}

function collect(collecting: Collecting, { value, root, type, depth }: Found): void {
  const itemType = itemTypeOf(value);
  if (itemType && depth < DEEPEST_LIST) {
    const items = (value as { items?: unknown[] | null }).items ?? [];
    items.forEach((item, index) =>
      collect(collecting, {
        value: item,
        root: [...root, "items", index],
        type: itemType,
        depth: depth + 1,
      })
    );
    return;
  }
  const { document, reading, outcomes } = collecting;
  const place = { document, root, problems: reading.problems };
  const ownType = { ...type, ...typeOf(value) };
  const known = knownKind(ownType, {
    value,
    kinds: reading.kinds,
    report: new ObjectReport(place, undefined),
  });
  if (known === "ignored") {
    const { kind = "", apiVersion } = ownType;
    const group = reading.kinds.has(kind) ? ` of ${apiVersion}` : "";
    outcomes.push({ outcome: "ignored", kind: kind + group });
  } else if (known === "refused") {
    outcomes.push({ outcome: "refused", id: undefined });
  } else {
    outcomes.push(readKnown(known, value, { document, root, reading }));
  }
}

function readKnown(
  spec: KindSpec,
  value: unknown,
  { document, root, reading: { problems, strings } }: Omit<Collecting, "outcomes"> & {
    readonly root: FieldPath;
  },
): ManifestOutcome {
  const id = rawObjectId(spec, value);
  const report = new ObjectReport({ document, root, problems }, id ?? spec.kind);
  const isDetached = document.isJson;
  const entry = readManifestObject(spec, value, { report, strings, isDetached });
  if (entry) return { outcome: "read", entry };
  const rest = id !== undefined && spec.restricts
    ? readPartialObject(spec, value, strings)
    : undefined;
  return { outcome: "refused", id, rest };
}

function knownKind(
  { kind, apiVersion }: ManifestType,
  { value, kinds, report }: {
    readonly value: unknown;
    readonly kinds: ReadonlyMap<string, KindSpec>;
    readonly report: ObjectReport;
  },
): KindSpec | "ignored" | "refused" {
  if (!isMapping(value)) {
    // Without the value: the file may be a private key that was named by mistake.
    const found = value === null
      ? "nothing"
      : Array.isArray(value)
      ? "a list"
      : `a ${typeof value}`;
    report.error({ path: [], message: `Expected an object, with fields, found ${found}` });
    return "refused";
  }
  if (kind === undefined || apiVersion === undefined) {
    const path = [kind === undefined ? "kind" : "apiVersion"];
    report.error({ path, value: value[path[0]!], message: "has to be there, as text" });
    return "refused";
  }
  const spec = kinds.get(kind);
  if (!spec) {
    const nearest = nearestName(kind, [...kinds.keys()]);
    if (nearest) {
      report.warn({
        path: ["kind"],
        value: kind,
        message: `is not read; did you mean ${nearest}?`,
      });
    }
    return "ignored";
  }
  const versions = apiVersionsOf(spec);
  if (versions.includes(apiVersion)) return spec;
  // Other API groups have kinds of these names too, such as Knative's Service.
  if (groupOf(apiVersion) !== spec.group) return "ignored";
  const message = `has to be ${versions.join(" or ")} for kind ${kind}`;
  report.error({ path: ["apiVersion"], value: apiVersion, message });
  return "refused";
}

function typeOf(value: unknown): ManifestType {
  if (!isMapping(value)) return {};
  const { kind, apiVersion } = value;
  return {
    ...(typeof kind === "string" && { kind }),
    ...(typeof apiVersion === "string" && { apiVersion }),
  };
}

function groupOf(apiVersion: string): string {
  return apiVersion.includes("/") ? apiVersion.slice(0, apiVersion.indexOf("/")) : "";
}
