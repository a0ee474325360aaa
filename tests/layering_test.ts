/**
 * The direction of imports, the purity of the core and the few files that touch the machine, as
 * docs/architecture.md has them. Rules are data; each is also shown to find a planted violation.
 */
import { assert, assertEquals } from "@std/assert";

const ROOT = new URL("../", import.meta.url);

/** A source file with its content. */
interface SourceFile {
  /** Relative to the repository, e.g. `lib/net/cidr.ts`. */
  readonly path: string;
  readonly text: string;
}

const CORE = ["lib/routing", "lib/proxy", "lib/policy", "lib/api", "lib/net"];
const EDGES = ["lib/log", "lib/os"];
/** What a data plane stands on. */
const BELOW_PLANES = ["lib/engine", ...EDGES, ...CORE];
const BELOW_APP = ["lib/kube", "lib/config", "lib/health", "lib/metrics", ...BELOW_PLANES];
/** The kernel's tools, which the data planes share; each uses the other. */
const TOOLKITS = ["backends/iproute", "backends/netfilter"];
const PLANES = [
  ...["announce", "iptables", "ipvs", "nftables", "policy", "userspace"],
].map((plane) => `backends/${plane}`);

/** The layers that a file of a layer may import, besides its own folder. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  "lib/std": [],
  "lib/net": [],
  "lib/api": ["lib/net"],
  "lib/proxy": ["lib/api", "lib/net"],
  "lib/policy": ["lib/api", "lib/net"],
  "lib/routing": ["lib/proxy", "lib/policy", "lib/api", "lib/net"],
  ...Object.fromEntries(
    ["kube", "controller", "engine", "config", "log", "os"].map((edge) => [
      `lib/${edge}`,
      [...CORE, ...EDGES],
    ]),
  ),
  // Health and metrics are those of a loop.
  "lib/health": ["lib/engine", ...CORE, ...EDGES],
  "lib/metrics": ["lib/engine", ...CORE, ...EDGES],
  ...Object.fromEntries(TOOLKITS.map((toolkit) => [toolkit, [...TOOLKITS, ...BELOW_PLANES]])),
  ...Object.fromEntries(PLANES.map((plane) => [plane, [...TOOLKITS, ...BELOW_PLANES]])),
  // The files next to the folders list them.
  "backends": [...PLANES, ...TOOLKITS, ...BELOW_PLANES],
  "lib/app": BELOW_APP,
  "lib/tools": ["lib/app", ...BELOW_APP],
  "main.ts": [
    ...["ffi_permission.ts", "lib/tools", "lib/app", ...BELOW_APP],
    ...["backends", ...PLANES, ...TOOLKITS],
  ],
};

/** Single imports across siblings, each with its reason. */
const EXCEPTIONS: Readonly<Record<string, string>> = {
  // Manifests and the configuration are read by one YAML reader, which knows positions.
  "lib/kube": "lib/config/yaml_source.ts",
  // The common interface of data planes; that of Services extends it.
  "lib/proxy": "lib/engine/data_plane.ts",
};

/** Files of backends that are pure whether or not they claim it. */
const PURE_IN_BACKENDS = [
  ...["render\\w*", "explain\\w*", "local_match", "prefix_tree", "service_objects"],
  ...["undotted_address", "verification_schedule", "affinity_table", "listeners"],
  ...["endpoint_picker", "endpoint_loops"],
];
/** The docstring of a module, and a claim in it. */
const CLAIMS_PURITY = /^\s*\/\*\*(?:(?!\*\/)[\s\S])*\bPure\b/;

/**
 * The toolkits of kernel tools, which serve every controller, and the modules that they must not
 * import.
 */
const TOOLKIT = /^backends\/(netfilter\/(nft|iptables|ipset)|iproute)\//;
const SERVICES =
  /^lib\/(api\/|proxy\/(service_(?!mode)|proxy_))|^backends\/(iptables|ipvs|userspace)\//;

/** Files of a backend that a sync uses, and tools that they must not import. */
const WRITE_PATH = [
  ...["target", "layout", "changes", "render\\w*", "service_objects", "base_chains", "base_rules"],
  ...["objects", "own_objects", "policy_plane", "policy_target"],
  ...["rule_backend", "refused_items", "nft_transaction"],
];
const TOOL =
  /\/(compare(?!_lists\.)\w*|\w+_comparison|explain\w*|trace\w*|inspect\w*|find_\w+)\.ts$/;

const REACHES_OUTSIDE = [
  /\bDeno\./,
  /\bDate\.now\b/,
  /\bnew Date\(\)/,
  /\bperformance\b/,
  /\bset(Timeout|Interval|Immediate)\b/,
  /\bMath\.random\b/,
  // Hashes of `node:crypto` are pure.
  /(?<!node:)\bcrypto\b/,
  /\bconsole\./,
  /\bfetch\(/,
];

/** Actions that only some files may perform. */
const ONLY_IN: readonly { what: string; pattern: RegExp; files: RegExp }[] = [
  {
    what: "starts a process",
    pattern: /\bDeno\.Command\b|node:child_process/,
    files: /^lib\/os\/command_runner\.ts$/,
  },
  {
    what: "opens a socket",
    pattern: /\bDeno\.(listen|listenTls|listenDatagram|connect|connectTls)\b|node:(net|tls|dgram)"/,
    files: /^lib\/(os\/(network|sd_notify)|tools\/control\/control_(client|server))\.ts$/,
  },
  {
    what: "calls C, where a wrong length is a write past a buffer",
    pattern: /\bDeno\.(dlopen|Unsafe\w+)\b/,
    files: /^backends\/userspace\/syscalls\/(libc|process_calls)\.ts$/,
  },
  {
    what: "serves HTTP without bounds",
    pattern: /\bDeno\.serve\b|\bcreateServer\(/,
    files: /^$/,
  },
  {
    what: "takes errors that nothing caught",
    pattern: /"unhandledrejection"|"uncaughtException"/,
    files: /^lib\/os\/uncaught_errors\.ts$/,
  },
  {
    what: "asks by HTTP",
    pattern: /(?<![.#\w])fetch\(|\bDeno\.createHttpClient\b|node:https?2?"/,
    files: /^lib\/(kube\/\w+|tools\/control\/control_client)\.ts$/,
  },
  {
    what: "reads a clock or sets a timer",
    pattern:
      /\bDate\.now\b|\bnew Date\(\)|\bperformance\.|\bset(Timeout|Interval)\b|\bAbortSignal\.timeout\b/,
    files: /^lib\/os\/clock\.ts$/,
  },
  {
    // An administrator or NTP sets it: what waits, times out or expires goes by `now()`. These
    // print it, write it into records and events, or compare it with a date of a file or credential.
    what: "reads the time of day",
    pattern: /\.wallNow\(/,
    files: new RegExp(
      "^lib/(app|tools|log|metrics)/|^lib/(os/clock|os/http_connection|health/proxy_health|" +
        "engine/sync_loop|kube/event_recorder|kube/credential_plugin|" +
        "kube/manifests/manifests)\\.ts$|" +
        "^backends/netfilter/refused_items\\.ts$",
    ),
  },
  {
    what: "listens for signals, which then wait for a turn of the event loop",
    pattern: /\bDeno\.addSignalListener\b/,
    files: /^lib\/os\/(termination_signals|terminal)\.ts$/,
  },
  {
    what: "prints",
    pattern: /\bconsole\./,
    files: /^$/,
  },
  {
    what: "loads the whole Kubernetes client library, which costs 10 MB and more",
    pattern: /"(npm:)?@kubernetes\/client-node(?!\/dist\/config_types\.js)/,
    files: /^$/,
  },
  {
    what: "is code for tests",
    pattern: /from "(@std\/(assert|testing)|fast-check|(\.\.\/)+tests\/)/,
    files: /^$/,
  },
];

/** The folder that decides what a file may import: `lib/<layer>`, `backends/<layer>` or the top. */
function layerOf(path: string): string {
  const [top, next, ...rest] = path.split("/");
  return rest.length > 0 ? `${top}/${next}` : top!;
}

/** `text` without comments, so that a comment may name what code may not. */
function withoutComments(text: string): string {
  const token =
    /("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|\/\/[^\n]*|\/\*[\s\S]*?\*\//g;
  return text.replace(token, (_, literal) => literal ?? "");
}

/**
 * The files of this repository that a file imports, statically or not, relative to the repository.
 */
function importsOf({ path, text }: SourceFile): string[] {
  const found = withoutComments(text).matchAll(/\b(?:from|import|import\()\s*"(\.[^"]+)"/g);
  const base = new URL(path, ROOT);
  return [...found].map(([, specifier]) => new URL(specifier!, base).href.slice(ROOT.href.length));
}

/** Whether a file of a backend has one of these names, without its ending. */
function isNamed(path: string, names: readonly string[]): boolean {
  return new RegExp(`^backends/.*/(${names.join("|")})\\.ts$`).test(path);
}

function mayImport(from: string, to: string): boolean {
  const [own, other] = [layerOf(from), layerOf(to)];
  return own === other || EXCEPTIONS[own] === to || (MAY_IMPORT[own] ?? []).includes(other);
}

function isPure({ path, text }: SourceFile): boolean {
  if (/^lib\/(net|api|proxy|policy|routing)\//.test(path) || CLAIMS_PURITY.test(text)) {
    return true;
  }
  return isNamed(path, PURE_IN_BACKENDS);
}

/** Every breach of the rules by one file, as sentences. */
function violationsOf(file: SourceFile): string[] {
  const { path } = file;
  const code = withoutComments(file.text);
  const found = importsOf(file)
    .filter((to) => !mayImport(path, to))
    .map((to) => `${path} imports ${to}: ${layerOf(path)} must not know ${layerOf(to)}`);
  if (isNamed(path, WRITE_PATH)) {
    const tools = importsOf(file).filter((to) => TOOL.test(to));
    found.push(...tools.map((to) => `${path} writes and imports the tool ${to}`));
  }
  if (TOOLKIT.test(path)) {
    const services = importsOf(file).filter((to) => SERVICES.test(to));
    found.push(...services.map((to) => `${path} is a toolkit and imports ${to} of Services`));
  }
  if (isPure(file)) {
    for (const pattern of REACHES_OUTSIDE) {
      const match = pattern.exec(code);
      if (match) found.push(`${path} is to be pure but says '${match[0]}'`);
    }
  }
  for (const { what, pattern, files } of ONLY_IN) {
    const match = pattern.exec(code);
    if (match && !files.test(path)) found.push(`${path} ${what} by '${match[0]}'`);
  }
  return found;
}

async function sourceFiles(folder: string): Promise<SourceFile[]> {
  const files: SourceFile[] = [];
  for await (const entry of Deno.readDir(new URL(folder, ROOT))) {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory) files.push(...await sourceFiles(path));
    else if (path.endsWith(".ts") && !path.endsWith("_test.ts") && !path.endsWith(".d.ts")) {
      files.push({ path, text: await Deno.readTextFile(new URL(path, ROOT)) });
    }
  }
  return files;
}

async function productFiles(): Promise<SourceFile[]> {
  const files = [...await sourceFiles("lib"), ...await sourceFiles("backends")];
  const text = await Deno.readTextFile(new URL("main.ts", ROOT)).catch(() => undefined);
  if (text !== undefined) files.push({ path: "main.ts", text });
  return files;
}

Deno.test("the product keeps to its layers, its purity and its edges", async () => {
  const files = await productFiles();
  assert(files.length > 20, `expected the product's files, found ${files.length}`);
  assertEquals(files.flatMap(violationsOf), []);
});

Deno.test("every folder has its place among the layers", async () => {
  const layers = new Set((await productFiles()).map((file) => layerOf(file.path)));
  assertEquals([...layers].filter((layer) => !(layer in MAY_IMPORT)), []);
});

Deno.test("each name of a file in a backend stands for one", async () => {
  const paths = (await productFiles()).map(({ path }) => path);
  const gone = [...PURE_IN_BACKENDS, ...WRITE_PATH]
    .filter((name) => !paths.some((path) => isNamed(path, [name])));
  assertEquals(gone, []);
});

Deno.test("no imports form a circle between layers", () => {
  // What a layer may import must not, by any way, be allowed to import it. lib/log and lib/os may
  // use each other, as the toolkits do: all other edges, and all data planes, use both.
  const reach = (from: string, seen = new Set<string>()): Set<string> => {
    for (const next of MAY_IMPORT[from] ?? []) {
      if (!seen.has(next)) reach(next, seen.add(next));
    }
    return seen;
  };
  for (const layer of Object.keys(MAY_IMPORT)) {
    if (EDGES.includes(layer) || TOOLKITS.includes(layer)) continue;
    assert(!reach(layer).has(layer), `${layer} may import itself by way of others`);
  }
});

/** The files that are part of a circle of imports, types included, or between two circles. */
function filesInCircles(files: readonly SourceFile[]): readonly string[] {
  const left = new Map(files.map((file) => [file.path, new Set(importsOf(file))]));
  for (let before = 0; before !== left.size;) {
    before = left.size;
    for (const [path, imports] of left) {
      const isImported = [...left.values()].some((others) => others.has(path));
      if (!isImported || left.keys().every((other) => !imports.has(other))) left.delete(path);
    }
  }
  return [...left.keys()].sort();
}

Deno.test("no imports form a circle between files, types included", async () => {
  assertEquals(filesInCircles(await productFiles()), []);
});

Deno.test("filesInCircles() finds a planted circle through a type, and nothing around it", () => {
  const files = [
    { path: "lib/net/a.ts", text: 'import { b } from "./b.ts";' },
    { path: "lib/net/b.ts", text: 'import type { C } from "./c.ts";' },
    { path: "lib/net/c.ts", text: 'import { b } from "./b.ts"; export { d } from "./d.ts";' },
    { path: "lib/net/d.ts", text: "export const d = 1;" },
  ];
  assertEquals(filesInCircles(files), ["lib/net/b.ts", "lib/net/c.ts"]);
});

/** Violations that must be found: path, code, and the expected message. */
const PLANTED: readonly (readonly [path: string, text: string, says: string])[] = [
  ["lib/net/a.ts", 'import { b } from "../proxy/b.ts";', "lib/net must not know lib/proxy"],
  ["lib/proxy/a.ts", 'import type { B } from "../os/b.ts";', "lib/proxy must not know lib/os"],
  ["lib/proxy/a.ts", 'export { b } from "../../backends/b.ts";', "must not know backends"],
  ["lib/kube/a.ts", 'const b = await import("../app/b.ts");', "lib/kube must not know lib/app"],
  ["lib/app/a.ts", 'import type { B } from "../tools/b.ts";', "lib/app must not know lib/tools"],
  ["lib/tools/a.ts", 'import { b } from "../../backends/mod.ts";', "must not know backends"],
  [
    "backends/ipvs/a.ts",
    'import { b } from "../nftables/b.ts";',
    "must not know backends/nftables",
  ],
  ["lib/net/a.ts", "const x = Deno.args;", "is to be pure but says 'Deno.'"],
  ["lib/proxy/a.ts", "const x = Date.now();", "is to be pure but says 'Date.now'"],
  ["lib/app/a.ts", "/**\n * Text. Pure.\n */\nconst x = new Date();", "is to be pure"],
  ["lib/app/a.ts", 'new Deno.Command("ip");', "starts a process"],
  ["backends/userspace/a.ts", "Deno.connect({ port: 1 });", "opens a socket"],
  ["lib/kube/a.ts", 'import { connect } from "node:net";', "opens a socket"],
  ["backends/userspace/a.ts", "Deno.dlopen(path, {});", "calls C"],
  ["lib/app/a.ts", "Deno.serve(() => {});", "serves HTTP"],
  ["lib/app/a.ts", 'addEventListener("unhandledrejection", f);', "nothing caught"],
  ["backends/userspace/a.ts", 'await fetch("http://a");', "asks by HTTP"],
  ["lib/engine/a.ts", "setTimeout(f, 1);", "sets a timer"],
  ["lib/app/a.ts", "console.log(1);", "prints"],
  ["lib/app/a.ts", 'import { K } from "@kubernetes/client-node";', "costs 10 MB"],
  ["lib/app/a.ts", 'import { x } from "../../tests/support/x.ts";', "is code for tests"],
  [
    "backends/iproute/a.ts",
    'import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";',
    "is a toolkit and imports",
  ],
  ["backends/ipvs/changes.ts", 'import { x } from "./explain.ts";', "imports the tool"],
];

for (const [path, text, says] of PLANTED) {
  Deno.test(`violationsOf() finds ${JSON.stringify(text)} in ${path}`, () => {
    const found = violationsOf({ path, text });
    assert(found.some((sentence) => sentence.includes(says)), `found only ${found.join("; ")}`);
  });
}

/** Texts that must not count as violations. */
const INNOCENT: readonly (readonly [path: string, text: string])[] = [
  [
    "lib/proxy/a.ts",
    "/** Not by Deno.listen(), nor at Date.now(). */\nconst x = 1; // console.log",
  ],
  ["lib/proxy/a.ts", 'import { b } from "../net/b.ts"; import ipaddr from "ipaddr.js";'],
  ["lib/kube/a.ts", 'import { log } from "../log/logger.ts"; this.#fetch(1);'],
  ["lib/kube/a.ts", 'import { n } from "@kubernetes/client-node/dist/config_types.js";'],
  ["backends/ipvs/a.ts", 'import { names } from "../netfilter/names.ts";'],
  [
    "main.ts",
    'import { BACKENDS } from "./backends/mod.ts"; import { run } from "./lib/app/run.ts";',
  ],
];

for (const [path, text] of INNOCENT) {
  Deno.test(`violationsOf() accepts ${JSON.stringify(text)} in ${path}`, () => {
    assertEquals(violationsOf({ path, text }), []);
  });
}
