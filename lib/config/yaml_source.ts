/**
 * YAML with positions: the one file that reads it, for the configuration and for manifests.
 *
 * The text is untrusted. Reading always ends, takes memory in proportion to the text, and returns
 * values that are safe to walk: no cycles, no `__proto__`, bounded aliases.
 *
 * @module
 */
import {
  type Document,
  isAlias,
  isMap,
  isPair,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  type Node,
  type Pair,
  parseAllDocuments,
  Scalar,
  type ScalarTag,
  visit,
  type YAMLError,
  type YAMLMap,
} from "yaml";
import { messageOf } from "../log/message_of.ts";
import { parsePlainYaml } from "./plain_yaml.ts";

/**
 * Most tokens (words, punctuation, indentation) of a text that the exact parser reads. It takes 3
 * µs for each in valid text and 10 µs in garbage, without interruption.
 */
const MAX_TOKENS = 10_000;

/** Deepest nesting that the exact parser reads; each level costs stack. */
const MAX_NESTING = 64;

/** The lexer's mark before a scalar. */
const SCALAR_MARK = "\x1f";

/** Returns the part that would take the exact parser too long, and its line. */
function findExcess(
  text: string,
): { readonly line: number; readonly message: string } | undefined {
  let [tokens, line, flows, blocks] = [0, 1, 0, 0];
  let isScalar = false;
  for (const token of new Lexer().lex(text)) {
    if (++tokens > MAX_TOKENS) {
      const message = `Cannot read YAML: a document may have at most ${MAX_TOKENS} tokens; split ` +
        "it, or write it as JSON, or as YAML without anchors, tags and letters beyond ASCII";
      return { line, message };
    }
    // A mark of its own precedes each scalar.
    if (isScalar || token === SCALAR_MARK) isScalar = token === SCALAR_MARK;
    else if (token === "[" || token === "{") flows++;
    else if (token === "]" || token === "}") flows--;
    else if (token === "-" || token === "?") blocks++;
    if (flows > MAX_NESTING || blocks > MAX_NESTING) {
      const message = `Cannot read YAML: it is nested more than ${MAX_NESTING} levels deep`;
      return { line, message };
    }
    const lines = token.split("\n").length - 1;
    line += lines;
    if (lines > 0) blocks = 0;
  }
  return undefined;
}

/** A place in a text, both numbers from 1. */
export interface TextPosition {
  readonly line: number;
  readonly column: number;
}

/** A syntax error and its position. */
export interface YamlError extends TextPosition {
  readonly file: string;
  readonly message: string;
}

/**
 * One document of a text. It holds the text and, once a position was requested, the syntax tree: do
 * not keep it.
 */
export interface YamlDocument {
  /** The value in plain objects, arrays, strings, numbers, booleans and null. */
  readonly value: unknown;
  /** Whether the JSON parser read it: its texts are then copies, not views of the whole text. */
  readonly isJson: boolean;
  /**
   * Returns the start of a field: of its key, or of the list item. For a path that does not exist,
   * the start of its nearest existing parent.
   */
  positionOf(path: readonly (string | number)[]): TextPosition;
}

/** Options of {@linkcode readYaml}. */
interface ReadYamlOptions {
  /** The name of the text in errors. */
  file: string;
  /** The position of the text in the file, if it is a part of one. */
  origin?: TextPosition;
  /**
   * Reads a plain document with a parser that is about eight times faster, and finds positions only
   * on request. It does not notice a repeated key in JSON: the last one wins.
   */
  quick?: boolean;
  /**
   * Reads like kube-proxy's decoder: the last of several keys with one name wins, with a warning
   * instead of an error; merge keys are followed; `yes`, `no`, `on` and `off` are booleans.
   */
  asKubeProxy?: boolean;
}

/** The result of {@linkcode readYaml}: the readable documents, and the errors of the others. */
export interface YamlResult {
  readonly documents: readonly YamlDocument[];
  readonly errors: readonly YamlError[];
  /** Ignored keys, with {@linkcode ReadYamlOptions.asKubeProxy}. */
  readonly warnings: readonly YamlError[];
}

/** Longest text that is read as YAML, in UTF-16 units. JSON may be longer. */
export const MAX_YAML_LENGTH = 512 * 1024;

/**
 * Longest JSON that is read. No object in a cluster is longer, because etcd refuses requests of
 * more than 1.5 MiB.
 */
export const MAX_PLAIN_LENGTH = 1536 * 1024;

/** Most aliases that are followed in one document, including those inside their targets. */
const MAX_ALIASES = 100;

/** Reports a problem at an offset of the text. */
type ReportYamlError = (offset: number, message: string) => void;

/**
 * Messages by the parser's error codes. The parser's own messages quote the text, which may be a
 * secret.
 */
const SYNTAX_PROBLEMS: Readonly<Partial<Record<YAMLError["code"], string>>> = {
  BAD_ALIAS: "this alias is invalid",
  BAD_COLLECTION_TYPE: "this tag does not fit its value",
  BAD_DIRECTIVE: "this directive is unknown or invalid",
  BAD_DQ_ESCAPE: "there is no such escape sequence; in single quotes there are none",
  BAD_SCALAR_START: "a value cannot begin with this character; put it in quotes",
  TAG_RESOLVE_FAILED: "this tag is unknown",
};

/** For garbage, the first errors are enough. */
const MAX_ERRORS = 10;

/** Reads all documents of a text. Never throws, whatever the text is. */
export function readYaml(text: string, options: ReadYamlOptions): YamlResult {
  const plain = options.quick && text.length <= MAX_PLAIN_LENGTH ? parsePlainYaml(text) : undefined;
  if (plain) {
    const documents = [lazyDocument(plain, { text, options })];
    return { documents, errors: [], warnings: [] };
  }
  return readExactly(text, options);
}

/** A document whose positions cost a second parse, which is only needed for a problem. */
function lazyDocument(
  { value, isJson }: Pick<YamlDocument, "isJson" | "value">,
  { text, options }: { text: string; options: ReadYamlOptions },
): YamlDocument {
  let exact: YamlDocument | undefined;
  return {
    value,
    isJson,
    positionOf(path) {
      exact ??= readExactly(text, options).documents[0];
      return exact?.positionOf(path) ?? options.origin ?? { line: 1, column: 1 };
    },
  };
}

function readExactly(text: string, options: ReadYamlOptions): YamlResult {
  if (text.length > MAX_YAML_LENGTH) {
    const message = `Cannot read ${text.length} characters as one YAML text: at most ` +
      `${MAX_YAML_LENGTH} are accepted; split it into smaller documents or files`;
    return refusal(toError(options, { line: 1, column: 1 }, message));
  }
  const excess = findExcess(text);
  if (excess) return refusal(toError(options, { line: excess.line, column: 1 }, excess.message));
  const lineCounter = new LineCounter();
  const documents: YamlDocument[] = [];
  const errors: YamlError[] = [];
  const warnings: YamlError[] = [];
  const noteIn = (list: YamlError[]): ReportYamlError => (offset, message) => {
    if (list.length >= MAX_ERRORS) return;
    list.push(toError(options, linePosition(lineCounter, offset), message));
  };
  const fail = noteIn(errors);
  const onSameKey = options.asKubeProxy ? noteIn(warnings) : fail;
  try {
    // uniqueKeys compares each key with every other key and would hang on a mapping of 100,000
    // keys; checkYamlTree() uses a Set.
    const parsed = parseAllDocuments(text, {
      lineCounter,
      prettyErrors: false,
      uniqueKeys: false,
      stringKeys: true,
      merge: options.asKubeProxy ?? false,
      ...(options.asKubeProxy && { customTags: (tags) => [YES_AND_NO, ...tags] }),
      resolveKnownTags: false,
      logLevel: "error",
    });
    for (const document of [...parsed]) {
      const before = errors.length;
      for (const { pos, code, message } of [...document.errors, ...document.warnings]) {
        fail(pos[0], `Cannot read YAML: ${SYNTAX_PROBLEMS[code] ?? withoutText(message)}`);
      }
      if (errors.length === before) checkYamlTree(document, fail, onSameKey);
      if (errors.length === before) documents.push(exactDocument(document, lineCounter, options));
    }
  } catch (error) {
    fail(0, `Cannot read YAML: ${reasonOf(error)}`);
  }
  return { documents, errors, warnings };
}

function refusal(error: YamlError): YamlResult {
  return { documents: [], errors: [error], warnings: [] };
}

function exactDocument(
  document: Document,
  lineCounter: LineCounter,
  options: ReadYamlOptions,
): YamlDocument {
  return {
    value: document.toJS({ maxAliasCount: MAX_ALIASES }),
    isJson: false,
    positionOf: (path) =>
      shift(linePosition(lineCounter, offsetOf(document, path)), options.origin),
  };
}

function toError(options: ReadYamlOptions, position: TextPosition, message: string): YamlError {
  return { file: options.file, ...shift(position, options.origin), message };
}

function reasonOf(error: unknown): string {
  // The composer recurses: a text of 100,000 brackets would exhaust the stack.
  if (error instanceof RangeError) return "it is nested too deeply";
  return withoutText(messageOf(error));
}

/** The parser quotes the text after a colon. */
function withoutText(message: string): string {
  return message.split(": ")[0] ?? "";
}

const YES = /^(?:yes|on)$/i;

/**
 * Reads `yes`, `no`, `on` and `off` without quotation marks as booleans, as kube-proxy's YAML 1.1
 * parser does.
 */
const YES_AND_NO: ScalarTag = {
  tag: "tag:yaml.org,2002:bool",
  default: true,
  identify: (value) => typeof value === "boolean",
  test: /^(?:[Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF)$/,
  resolve: (text) => new Scalar(YES.test(text)),
};

/**
 * Finds faults that the parser accepts or for which it takes too long: repeated keys, keys that
 * would set a prototype, aliases without an anchor or inside of it, and too many aliases.
 * `alias.resolve()` walks the whole document for each alias, so the anchors are recorded here.
 */
function checkYamlTree(
  document: Document,
  fail: ReportYamlError,
  onSameKey: ReportYamlError,
): void {
  const anchors = new Map<string, unknown>();
  let aliases = 0;
  visit(document, {
    Node(_, node, ancestors) {
      if (isMap(node)) checkKeys(node, fail, onSameKey);
      if (!isAlias(node)) {
        if (node.anchor !== undefined) anchors.set(node.anchor, node);
        return undefined;
      }
      const source = anchors.get(node.source);
      if (++aliases > MAX_ALIASES) {
        fail(startOf(node), `Cannot read YAML: more than ${MAX_ALIASES} aliases in one document`);
        return visit.BREAK;
      }
      if (!source) {
        fail(startOf(node), "Cannot read YAML: no anchor of this name before this alias");
      } else if (ancestors.some((ancestor) => ancestor === source)) {
        fail(startOf(node), "Cannot read YAML: this alias is inside its own anchor");
      }
      return undefined;
    },
  });
}

function checkKeys(map: YAMLMap, fail: ReportYamlError, onSameKey: ReportYamlError): void {
  const seen = new Set<string>();
  for (const pair of map.items) {
    const key = keyOf(pair);
    if (key === "__proto__") fail(startOf(pair.key), `Cannot read YAML: '${key}' is no field name`);
    if (seen.has(key)) {
      onSameKey(startOf(pair.key), `Cannot read YAML: key ${nameOf(key)}is repeated here`);
    }
    seen.add(key);
  }
}

/** Returns a key that may be the name of a field, and no other. */
function nameOf(key: string): string {
  return /^[A-Za-z][\w./-]{0,62}$/.test(key) ? `'${key}' ` : "";
}

/** Returns the offset of a field, or of its nearest existing parent. */
function offsetOf(document: Document, path: readonly (string | number)[]): number {
  let node: unknown = document.contents;
  let offset = startOf(node);
  for (const step of path) {
    if (isAlias(node)) node = node.resolve(document);
    if (isMap(node)) {
      const pair = node.items.findLast((item) => keyOf(item) === String(step));
      if (!pair) break;
      offset = startOf(pair.key);
      node = pair.value;
    } else if (isSeq(node) && typeof step === "number" && step in node.items) {
      node = node.items[step];
      offset = startOf(node, offset);
    } else {
      break;
    }
  }
  return offset;
}

/** Returns the key of a pair as text. */
function keyOf(pair: Pair): string {
  return String(isScalar(pair.key) ? pair.key.value : pair.key);
}

/** Returns the offset of a node, or of the key of a pair. */
function startOf(item: unknown, otherwise = 0): number {
  const node = (isPair(item) ? item.key : item) as Node | null | undefined;
  return node?.range?.[0] ?? otherwise;
}

/** Returns the position of an offset. */
function linePosition(lineCounter: LineCounter, offset: number): TextPosition {
  const { line, col } = lineCounter.linePos(offset);
  // The counter returns line 0 for an empty text.
  return { line: Math.max(1, line), column: Math.max(1, col) };
}

/** Returns a position in a file, for a text that starts at `origin` of the file. */
function shift(position: TextPosition, origin: TextPosition | undefined): TextPosition {
  if (!origin) return position;
  return {
    line: position.line + origin.line - 1,
    column: position.line === 1 ? position.column + origin.column - 1 : position.column,
  };
}
