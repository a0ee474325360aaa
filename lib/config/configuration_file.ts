/**
 * Reads a configuration file; every problem names file, line and column.
 *
 * @module
 */
import { messageOf } from "../log/message_of.ts";
import { readTextUpTo } from "../os/read_text_up_to.ts";
import type { KubeProxyConfiguration } from "./configuration.ts";
import { CONFIGURATION_FIELDS, type FieldTree, parseConfiguration } from "./configuration.ts";
import { didYouMean } from "../api/nearest_name.ts";
import { MAX_YAML_LENGTH, readYaml, type TextPosition } from "./yaml_source.ts";

/** A field that is ignored, and its position. */
interface FileWarning {
  /** `file:line:column`. */
  readonly at: string;
  readonly reason: string;
  /** Fields of a log line are open-ended. */
  readonly [field: string]: string;
}

/** The content of a file. */
export interface ConfigurationFile {
  /** Absent if a value has the wrong type or the file is not YAML. */
  readonly configuration?: KubeProxyConfiguration;
  readonly problems: readonly string[];
  readonly warnings: readonly FileWarning[];
  /**
   * Returns `file:line:column: path` of a field, or `file: path` if the file does not contain it.
   */
  describe(path: readonly (string | number)[]): string;
}

/**
 * Maximum number of warnings. Each position needs a walk through the text: 30,000 of them, for a
 * file of another kind, blocked the process for 18 s.
 */
const MOST_WARNINGS = 20;

/** Reads and types a file. Never throws because of its content or its absence. */
export async function readConfigurationFile(
  { readTextFile }: { readonly readTextFile: (path: string) => Promise<string> },
  file: string,
): Promise<ConfigurationFile> {
  let text: string;
  try {
    text = await readTextFile(file);
  } catch (error) {
    return failed([`--config: Cannot read configuration file '${file}': ${messageOf(error)}`]);
  }
  const at = ({ line, column }: TextPosition) => `${file}:${line}:${column}`;
  const { documents, errors, warnings: sameKeys } = readYaml(text, { file, asKubeProxy: true });
  if (errors.length > 0) return failed(errors.map((error) => `${at(error)}: ${error.message}`));
  // A text that begins or ends with `---` has an empty document.
  const [document, ...others] = documents.filter(({ value }) => value !== null);
  if (document === undefined) {
    return failed([`${file}: Expected a document of kind KubeProxyConfiguration, found none`]);
  }
  const describe = (path: readonly (string | number)[]) =>
    at(document.positionOf(path)) + (path.length === 0 ? "" : `: ${pathText(path)}`);
  const { configuration, problems } = parseConfiguration(document.value);
  const unknown = unknownFields(document.value, CONFIGURATION_FIELDS);
  const warnings = [
    ...sameKeys.map(({ message, ...place }) => ({
      at: at(place),
      reason: `${message.replace("Cannot read YAML: key", "Key")}; this one is used`,
    })),
    // Upstream reads only the first document and does not warn.
    ...others.map(({ positionOf }) => (
      { at: at(positionOf([])), reason: "Only the first document is used" }
    )),
  ].slice(0, MOST_WARNINGS);
  for (const { path, message } of unknown.slice(0, MOST_WARNINGS)) {
    warnings.push({ at: at(document.positionOf(path)), reason: message });
  }
  if (unknown.length > MOST_WARNINGS) {
    const reason = `${unknown.length - MOST_WARNINGS} more fields are unknown and ignored`;
    warnings.push({ at: file, reason });
  }
  return {
    ...(configuration && { configuration }),
    problems: problems.map(({ path, message }) => `${describe(path)}: ${message}`),
    warnings,
    describe,
  };
}

/** Returns e.g. `nodePortAddresses[1]` or `iptables.syncPeriod`. */
function pathText(path: readonly (string | number)[]): string {
  return path.map((step) => typeof step === "number" ? `[${step}]` : `.${step}`).join("").slice(1);
}

function failed(problems: readonly string[]): ConfigurationFile {
  return { problems, warnings: [], describe: String };
}

/** Fields of older kube-proxies, and what to use instead. */
const RETIRED_FIELDS: ReadonlyMap<string, string> = new Map([
  ["udpIdleTimeout", "it belonged to the old userspace mode; here it is --udp-timeout"],
  ["resourceContainer", "the supervisor chooses the control group"],
  ["conntrack.max", "use conntrack.maxPerCore and conntrack.min"],
]);

/** A field that does not exist. */
interface UnknownField {
  readonly path: readonly string[];
  /** The consequence, and the name that was probably meant. */
  readonly message: string;
}

/**
 * Returns every field that the tree does not know. They are no errors, because a file for a newer
 * kube-proxy must work. Fields below an unknown field are not reported.
 */
function unknownFields(
  value: unknown,
  tree: FieldTree,
  parent: readonly string[] = [],
): readonly UnknownField[] {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return [];
  return Object.entries(value).flatMap(([name, inner]) => {
    const path = [...parent, name];
    if (Object.hasOwn(tree, name)) {
      const below = tree[name];
      return below === undefined ? [] : unknownFields(inner, below, path);
    }
    const field = path.join(".");
    const retired = RETIRED_FIELDS.get(field);
    if (retired !== undefined) {
      return [{ path, message: `Field '${field}' was retired: ${retired}` }];
    }
    const hint = didYouMean(name, Object.keys(tree));
    return [{ path, message: `Field '${field}' is unknown and ignored${hint}` }];
  });
}

/** A character in UTF-8 has at most four bytes; the parser would refuse longer text. */
const MAX_BYTES = 4 * MAX_YAML_LENGTH;

/** Reads a configuration file, which may be a pipe. Rejects if it is too long. */
export function readConfigurationText(path: string): Promise<string> {
  return readTextUpTo(path, MAX_BYTES);
}

/**
 * Reads a configuration file again. Rejects for a pipe, whose text is already consumed, and for a
 * file that is too long.
 */
export function rereadConfigurationText(path: string): Promise<string> {
  return readTextUpTo(path, MAX_BYTES, { onlyFiles: true });
}
