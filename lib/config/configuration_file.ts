/**
 * Reads a configuration file; every problem names file, line and column.
 *
 * @module
 */
import { messageOf } from "../log/message_of.ts";
import type { KubeProxyConfiguration } from "./configuration.ts";
import { CONFIGURATION_FIELDS, parseConfiguration } from "./configuration_schema.ts";
import { unknownFields } from "./unknown_fields.ts";
import { readYaml, type YamlDocument } from "./yaml_source.ts";

/** A field that is ignored, and where it stands. */
interface FileWarning {
  /** `file:line:column`. */
  readonly at: string;
  readonly reason: string;
  /** Fields of a log line are open-ended. */
  readonly [field: string]: string;
}

/** What was found in a file. */
export interface ConfigurationFile {
  /** Missing when a type is wrong or the file is no YAML. */
  readonly configuration?: KubeProxyConfiguration;
  readonly problems: readonly string[];
  readonly warnings: readonly FileWarning[];
  /** `file:line:column: path` of a field, or `file: path` when the file does not name it. */
  describe(path: readonly (string | number)[]): string;
}

/**
 * Things of one kind that are named. Each position costs a walk through the text: 30,000 of them, as of
 * a file that is something else, were 18 s in which nothing else ran.
 */
const MOST_WARNINGS = 20;

/** Reads and types a file. Never throws for what is in it, or for it not being there. */
export async function readConfigurationFile(
  { readTextFile }: { readonly readTextFile: (path: string) => Promise<string> },
  file: string,
): Promise<ConfigurationFile> {
  let text: string;
  try {
    text = await readTextFile(file);
  } catch (error) {
    const reason = messageOf(error);
    return failed([`--config: Cannot read configuration file '${file}': ${reason}`]);
  }
  const { documents, errors, warnings } = readYaml(text, { file, asKubeProxy: true });
  if (errors.length > 0) {
    return failed(
      errors.map(({ line, column, message }) => `${file}:${line}:${column}: ${message}`),
    );
  }
  // A text that begins or ends with `---` has an empty one.
  const [document, ...others] = documents.filter(({ value }) => value !== null);
  if (document === undefined) {
    return failed([`${file}: Expected a document of kind KubeProxyConfiguration, found none`]);
  }
  const sameKeys = warnings.map(({ line, column, message }) => ({
    at: `${file}:${line}:${column}`,
    reason: `${message.replace("Cannot read YAML: key", "Key")}; this one counts`,
  }));
  // Upstream reads no further than the first, and says nothing.
  const further = others.map(({ positionOf }) => {
    const { line, column } = positionOf([]);
    return { at: `${file}:${line}:${column}`, reason: "Only the first document counts" };
  });
  return interpret(document, { file, before: [...sameKeys, ...further].slice(0, MOST_WARNINGS) });
}

function interpret(
  document: YamlDocument,
  { file, before }: { readonly file: string; readonly before: readonly FileWarning[] },
): ConfigurationFile {
  const describe = (path: readonly (string | number)[]) => {
    const { line, column } = document.positionOf(path);
    const name = path.length === 0 ? "" : `: ${pathText(path)}`;
    return `${file}:${line}:${column}${name}`;
  };
  const { configuration, problems } = parseConfiguration(document.value);
  const unknown = unknownFields(document.value, CONFIGURATION_FIELDS);
  const warnings = unknown.slice(0, MOST_WARNINGS).map(({ path, message }) => {
    const { line, column } = document.positionOf(path);
    return { at: `${file}:${line}:${column}`, reason: message };
  });
  if (unknown.length > MOST_WARNINGS) {
    const reason = `${unknown.length - MOST_WARNINGS} more fields are unknown and ignored`;
    warnings.push({ at: file, reason });
  }
  return {
    ...(configuration && { configuration }),
    problems: problems.map(({ path, message }) => `${describe(path)}: ${message}`),
    warnings: [...before, ...warnings],
    describe,
  };
}

/** `nodePortAddresses[1]`, `iptables.syncPeriod`. */
function pathText(path: readonly (string | number)[]): string {
  return path.map((step) => typeof step === "number" ? `[${step}]` : `.${step}`).join("").slice(1);
}

function failed(problems: readonly string[]): ConfigurationFile {
  return { problems, warnings: [], describe: String };
}
