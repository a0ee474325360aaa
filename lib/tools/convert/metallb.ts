/**
 * Converts the objects of MetalLB (metallb.io) to LoadBalancerPools and BgpPeers. What works in another
 * way is a comment beside the field.
 *
 * @module
 */
import { tryParseDuration } from "../../api/duration.ts";
import { BGP_PEER, LOAD_BALANCER_POOL } from "../../api/kinds/routing_objects.ts";
import { NAMESPACE_NAME_LABEL } from "../../api/labels.ts";
import { defaultConfiguration } from "../../config/configuration.ts";
import { joinRoutingObjects, type RoutingObject } from "../../config/routing_objects.ts";
import { readYaml } from "../../config/yaml_source.ts";
import { isMapping } from "../../kube/manifests/manifest_objects.ts";
import { printableText } from "../../log/printable_text.ts";
import { type AddressRange, tryParseAddressRange } from "../../net/address_range.ts";
import { addressAt } from "../../net/ip_address.ts";

/** A raw object and its place, for messages. */
export interface PlacedRaw {
  readonly value: Readonly<Record<string, unknown>>;
  readonly place: string;
}

/** The result. */
export interface Conversion {
  /** YAML of all objects. */
  readonly text: string;
  /** Objects that have no equivalent, with the reason. */
  readonly problems: readonly string[];
}

type Fields = Readonly<Record<string, unknown>>;

/** A selector of labels. */
interface Selector {
  readonly matchLabels?: Readonly<Record<string, string>>;
  readonly matchExpressions?: readonly {
    readonly key: string;
    readonly operator: string;
    readonly values?: readonly string[];
  }[];
}

/** An object of MetalLB, whose fields are read one by one. */
class Source {
  readonly kind: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, unknown>>;
  readonly comments: string[] = [];
  readonly #spec: Fields;
  readonly #place: string;
  readonly #read = new Set<string>();

  constructor({ value, place }: PlacedRaw) {
    const metadata = isMapping(value["metadata"]) ? value["metadata"] : {};
    this.kind = String(value["kind"]);
    this.name = typeof metadata["name"] === "string" ? metadata["name"] : "";
    this.labels = isMapping(metadata["labels"]) ? metadata["labels"] : {};
    this.#spec = isMapping(value["spec"]) ? value["spec"] : {};
    this.#place = place;
    if (this.name === "") throw this.error("metadata.name", metadata["name"], "a name");
  }

  error(path: string, value: unknown, wanted: string): TypeError {
    // A password stays out of logs, whatever it is.
    const isSecret = path === "spec.password";
    const found = isSecret ? "another value" : (JSON.stringify(value) ?? "nothing").slice(0, 80);
    const what = `${this.kind} ${this.name || "without a name"}`;
    return new TypeError(`${this.#place}: ${what}: ${path}: Expected ${wanted}, found ${found}`);
  }

  #get(field: string): unknown {
    this.#read.add(field);
    return this.#spec[field] ?? undefined;
  }

  text(field: string): string | undefined {
    const value = this.#get(field);
    if (value === undefined || value === "") return undefined;
    if (typeof value !== "string") throw this.error(`spec.${field}`, value, "text");
    return value;
  }

  flag(field: string): boolean | undefined {
    const value = this.#get(field);
    if (value === undefined || typeof value === "boolean") return value;
    throw this.error(`spec.${field}`, value, "true or false");
  }

  number(field: string): number | undefined {
    const value = this.#get(field);
    if (value === undefined || Number.isInteger(value)) return value as number | undefined;
    throw this.error(`spec.${field}`, value, "a whole number");
  }

  texts(field: string): readonly string[] {
    const value = this.#get(field) ?? [];
    if (Array.isArray(value) && value.every((each) => typeof each === "string")) return value;
    throw this.error(`spec.${field}`, value, "a list of texts");
  }

  block(field: string): Source | undefined {
    const value = this.#get(field);
    if (value === undefined) return undefined;
    if (!isMapping(value)) throw this.error(`spec.${field}`, value, "fields");
    const metadata = { name: this.name };
    return new Source({ value: { kind: this.kind, metadata, spec: value }, place: this.#place });
  }

  selectors(field: string): readonly Selector[] {
    const value = this.#get(field) ?? [];
    if (Array.isArray(value) && value.every(isSelector)) return value;
    throw this.error(`spec.${field}`, value, "a list of selectors of labels");
  }

  /** The values of two fields of each item of a list. */
  pairs(field: string, names: readonly [string, string]): readonly (readonly [string, string])[] {
    const value = this.#get(field) ?? [];
    const isPair = (each: unknown): each is Readonly<Record<string, string>> =>
      isMapping(each) && names.every((name) => typeof each[name] === "string");
    if (!Array.isArray(value) || !value.every(isPair)) {
      throw this.error(`spec.${field}`, value, `a list of fields ${names.join(" and ")}`);
    }
    return value.map((each) => [each[names[0]]!, each[names[1]]!]);
  }

  /** Names the fields that nothing has read. */
  finish(): void {
    for (const field of Object.keys(this.#spec)) {
      if (!this.#read.has(field)) this.comments.push(`${field} of ${this.kind} is not known`);
    }
  }
}

function isSelector(value: unknown): value is Selector {
  if (!isMapping(value)) return false;
  const { matchLabels: labels, matchExpressions: expressions, ...others } = value;
  const isText = (each: unknown) => typeof each === "string";
  return Object.keys(others).length === 0 &&
    (labels === undefined || isMapping(labels) && Object.values(labels).every(isText)) &&
    (expressions === undefined ||
      Array.isArray(expressions) &&
        expressions.every((each) =>
          isMapping(each) && isText(each["key"]) && isText(each["operator"]) &&
          (each["values"] === undefined ||
            Array.isArray(each["values"]) && each["values"].every(isText))
        ));
}

/** One selector for those of which any may match; `undefined` if one cannot say it. */
function unionOf(selectors: readonly Selector[]): Selector | undefined {
  const [first, ...others] = selectors;
  if (others.length === 0) return first;
  const values: string[] = [];
  const keys = new Set<string>();
  for (const { matchLabels = {}, matchExpressions = [] } of selectors) {
    const terms = [
      ...Object.entries(matchLabels).map(([key, value]) => ({ key, values: [value] })),
      ...matchExpressions.map(({ key, operator, values = [] }) => ({
        key,
        values: operator === "In" ? values : [],
      })),
    ];
    if (terms.length !== 1 || terms[0]!.values.length === 0) return undefined;
    keys.add(terms[0]!.key);
    values.push(...terms[0]!.values);
  }
  if (keys.size !== 1) return undefined;
  const [key] = keys;
  return {
    matchExpressions: [{ key: key!, operator: "In", values: [...new Set(values)].sort() }],
  };
}

function matches({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Fields): boolean {
  return Object.entries(matchLabels).every(([key, value]) => labels[key] === value) &&
    matchExpressions.every(({ key, operator, values = [] }) => {
      const has = Object.hasOwn(labels, key);
      if (operator === "Exists" || operator === "DoesNotExist") {
        return has === (operator === "Exists");
      }
      return (has && values.includes(String(labels[key]))) === (operator === "In");
    });
}

/** A field of the result, and what differs from MetalLB. */
type Written = readonly [name: string, value: unknown, ...comments: readonly string[]];

/** Converts all objects. Those of other kinds are ignored. */
export function convertMetallb(given: readonly PlacedRaw[]): Conversion {
  const problems: string[] = [];
  const settings: string[] = [];
  const byKind = new Map<string, Source[]>();
  for (const raw of given.flatMap(withLegacy)) {
    try {
      const source = new Source(raw);
      byKind.set(source.kind, [...byKind.get(source.kind) ?? [], source]);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      problems.push(error.message);
    }
  }
  const convert = <T>(kind: string, make: (source: Source) => T): readonly T[] =>
    (byKind.get(kind) ?? []).flatMap((source) => {
      try {
        return [make(source)];
      } catch (error) {
        if (!(error instanceof TypeError)) throw error;
        problems.push(error.message);
        return [];
      }
    });
  const communities = new Map(
    convert("Community", (source) => source.pairs("communities", ["name", "value"])).flat(),
  );
  const advertisements = [
    ...convert("L2Advertisement", (source) => advertisementOf(source, "layer2", communities)),
    ...convert("BGPAdvertisement", (source) => advertisementOf(source, "bgp", communities)),
  ];
  const objects = [
    ...convert("IPAddressPool", (source) => poolOf(source, advertisements)),
    ...convert("BGPPeer", (source) => peerOf(source, settings)),
  ];
  if (advertisements.some(({ method }) => method === "bgp")) settings.push("--bgp");
  for (const { settings: own } of advertisements) settings.push(...own);
  return write(objects, settings, problems);
}

interface Converted {
  readonly kind: string;
  readonly source: Source;
  readonly name: string;
  readonly spec: readonly Written[];
}

interface Advertisement {
  readonly method: "layer2" | "bgp";
  readonly name: string;
  readonly selects: (pool: Source) => boolean;
  readonly nodes: readonly Selector[];
  readonly comments: readonly string[];
  readonly settings: readonly string[];
}

function advertisementOf(
  source: Source,
  method: Advertisement["method"],
  communities: ReadonlyMap<string, string>,
): Advertisement {
  const names = source.texts("ipAddressPools");
  const selectors = source.selectors("ipAddressPoolSelectors");
  const nodes = source.selectors("nodeSelectors");
  const settings: string[] = [];
  const { comments, name } = source;
  const differs = (what: string) => comments.push(`${source.kind} ${name}: ${what}`);
  if (method === "layer2") {
    const interfaces = source.texts("interfaces");
    if (interfaces.length > 0) {
      differs("interfaces belong to the node, for all pools");
      settings.push(`--arp-interfaces=${interfaces.join(",")}`);
    }
  } else {
    for (
      const [field, longest] of [["aggregationLength", 32], ["aggregationLengthV6", 128]] as const
    ) {
      const length = source.number(field) ?? longest;
      if (length !== longest) differs(`${field} ${length} is not used: each address is a prefix`);
    }
    const [localPref = 0, peers] = [source.number("localPref"), source.texts("peers")];
    const values = source.texts("communities").map((each) => communities.get(each) ?? each);
    if (localPref > 0) settings.push(`routing.bgp.localPreference: ${localPref}`);
    const large = values.filter((each) => each.startsWith("large:"))
      .map((each) => each.slice("large:".length));
    const plain = values.filter((each) => !each.startsWith("large:"));
    if (plain.length > 0) settings.push(`routing.bgp.communities: ${JSON.stringify(plain)}`);
    if (large.length > 0) settings.push(`routing.bgp.largeCommunities: ${JSON.stringify(large)}`);
    if (localPref > 0 || values.length > 0) differs("its attributes count for all pools");
    if (peers.length > 0) differs(`its peers (${peers.join(", ")}) are not the only ones`);
  }
  source.finish();
  return {
    ...{ method, name, nodes, comments, settings },
    selects: (pool) =>
      names.length === 0 && selectors.length === 0 || names.includes(pool.name) ||
      selectors.some((selector) => matches(selector, pool.labels)),
  };
}

/** The field of a selector; what one selector cannot say selects less than MetalLB does. */
function selectorField(name: string, selectors: readonly Selector[]): readonly Written[] {
  if (selectors.length === 0) return [];
  const union = unionOf(selectors);
  return [
    union
      ? [name, union]
      : [name, selectors[0], `MetalLB has ${selectors.length} selectors; this is the first one`],
  ];
}

function poolOf(source: Source, all: readonly Advertisement[]): Converted {
  const advertisements = all.filter(({ selects }) => selects(source));
  const methods = new Set(advertisements.map(({ method }) => method));
  const announce = methods.has("layer2") ? "layer2" : methods.has("bgp") ? "bgp" : "none";
  const own = advertisements.filter(({ method }) => method === announce);
  const nodes = own.some(({ nodes }) => nodes.length === 0)
    ? []
    : own.flatMap(({ nodes }) => nodes);
  const given = source.texts("addresses");
  const avoids = source.flag("avoidBuggyIPs") === true;
  const addresses = avoids ? given.flatMap(withoutBuggy) : given;
  const allocation = source.block("serviceAllocation");
  const priority = allocation?.number("priority") ?? 0;
  const names = allocation?.texts("namespaces") ?? [];
  const namespaces = [
    ...names.length === 0
      ? []
      : [{ matchExpressions: [{ key: NAMESPACE_NAME_LABEL, operator: "In", values: names }] }],
    ...allocation?.selectors("namespaceSelectors") ?? [],
  ];
  const services = allocation?.selectors("serviceSelectors") ?? [];
  const autoAssign = source.flag("autoAssign") ?? true;
  allocation?.finish();
  source.finish();
  const both = methods.size > 1 ? ["MetalLB also announces the addresses by BGP"] : [];
  return {
    ...{ kind: LOAD_BALANCER_POOL.kind, source, name: nameOf(source, 63, "") },
    spec: [
      [
        "addresses",
        addresses,
        ...avoids ? ["avoidBuggyIPs: without .0 and .255, in ranges of at most 32 blocks"] : [],
      ],
      ...autoAssign ? [] : [["autoAssign", false] as const],
      ...priority > 0 ? [["priority", priority] as const] : [],
      [
        "announce",
        announce,
        ...announce === "none" ? ["no advertisement selects the pool"] : both,
        ...advertisements.flatMap(({ comments }) => comments),
        ...allocation?.comments ?? [],
        ...source.comments,
      ],
      ...selectorField("namespaceSelector", namespaces),
      ...selectorField("serviceSelector", services),
      ...selectorField("nodeSelector", nodes),
    ],
  };
}

/** The Secret whose keys are passwords of peers, by their names. */
const PASSWORDS = "kube-relay-bgp";

function peerOf(source: Source, settings: string[]): Converted {
  const name = nameOf(source, 55, "peer-");
  const { comments } = source;
  const own = source.number("myASN") ?? 0;
  const dynamic = source.text("dynamicASN");
  const as = source.number("peerASN") ?? (dynamic === "internal" ? own : 0);
  const address = source.text("peerAddress");
  const [port, local, hold] = [
    ...[source.number("peerPort"), source.text("sourceAddress"), source.text("holdTime")],
  ] as const;
  const holdMs = hold === undefined ? 90_000 : tryParseDuration(hold);
  if (as === 0) {
    throw source.error("spec.dynamicASN", dynamic, "the AS number of the peer, as peerASN");
  }
  if (address === undefined) {
    throw source.error(
      "spec.peerAddress",
      address,
      "an address: sessions by interface are not made",
    );
  }
  if (holdMs === undefined) throw source.error("spec.holdTime", hold, "a duration such as 90s");
  const vrf = source.text("vrf");
  if (vrf !== undefined) throw source.error("spec.vrf", vrf, "no VRF");
  if (own > 0) settings.push(`--bgp-local-as=${own}`);
  const router = source.text("routerID");
  if (router !== undefined) settings.push(`--bgp-router-id=${router}`);
  for (const field of ["keepaliveTime", "connectTime"] as const) {
    if (source.text(field) !== undefined) comments.push(`${field} is not used: BIRD has its own`);
  }
  const secret = source.block("passwordSecret");
  const [secretName, secretPlace] = [secret?.text("name"), secret?.text("namespace")];
  // The password itself is never written.
  const hasPassword = source.text("password") !== undefined || secretName !== undefined;
  const bfd = source.text("bfdProfile");
  const isMultihop = source.flag("ebgpMultiHop") === true;
  const isInternal = as === own;
  const nodes = source.selectors("nodeSelectors");
  const isDual = source.flag("dualStackAddressFamily") === true;
  const restarts = source.flag("enableGracefulRestart") === true;
  source.flag("disableMP");
  source.finish();
  const from = secretName === undefined
    ? "put the value of password there"
    : `copy key password of Secret ${secretPlace ?? "metallb-system"}/${secretName} there`;
  return {
    ...{ kind: BGP_PEER.kind, source, name },
    spec: [
      ["address", address, ...comments],
      ...port === undefined ? [] : [["port", port] as const],
      ["as", as, ...dynamic === undefined ? [] : ["dynamicASN: internal"]],
      ...local === undefined ? [] : [["localAddress", local] as const],
      ...hasPassword
        ? [[
          "passwordSecret",
          { name: PASSWORDS, key: name },
          `in routing.leaseNamespace: ${from}`,
        ]] as const
        : [],
      ...isMultihop ? [["multihopTtl", 255] as const] : [],
      [
        "holdTimeSeconds",
        Math.floor(holdMs / 1000),
        ...isInternal && !isMultihop
          ? ["multihopTtl: 255 is needed if the internal peer is not on a network of the node"]
          : [],
      ],
      ...bfd === undefined
        ? []
        : [["bfd", true, `with BIRD's times, not those of ${bfd}`] as const],
      ["gracefulRestartSeconds", restarts ? 120 : 0],
      ...isDual ? [["bothFamilies", true] as const] : [],
      ...selectorField("nodeSelector", nodes),
    ],
  };
}

/** A name that the definition accepts. */
function nameOf(source: Source, longest: number, prefix: string): string {
  const plain = source.name.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const head = prefix !== "" && !/^[a-z]/.test(plain) ? prefix + plain : plain;
  const name = head.slice(0, longest).replace(/^-+|-+$/g, "");
  if (name === "") {
    throw source.error("metadata.name", source.name, "a name with letters or digits");
  }
  if (name !== source.name) source.comments.push(`MetalLB's name: ${source.name}`);
  return name;
}

/** The parts of a range without the addresses of IPv4 that end with .0 and .255. */
function withoutBuggy(text: string): readonly string[] {
  const range = tryParseAddressRange(text);
  if (range?.family !== "IPv4") return [text];
  const parts: AddressRange[] = [];
  for (
    let block = range.first / 256n;
    block <= range.last / 256n && parts.length <= MOST_PARTS;
    block++
  ) {
    const [first, last] = [block * 256n + 1n, block * 256n + 254n];
    const part = {
      family: range.family,
      first: first > range.first ? first : range.first,
      last: last < range.last ? last : range.last,
    };
    if (part.first <= part.last) parts.push(part);
  }
  // Each is an entry of the object, which has a limit.
  if (parts.length > MOST_PARTS) return [text];
  return parts.map(({ family, first, last }) =>
    `${addressAt(first, family)}-${addressAt(last, family)}`
  );
}

const MOST_PARTS = 32;

/** Spellings of older versions that are not those of the objects with other capitals. */
const RENAMED: Readonly<Record<string, string>> = {
  ...{ myAsn: "myASN", peerAsn: "peerASN", routerId: "routerID", localpref: "localPref" },
  ...{ avoidBuggyIps: "avoidBuggyIPs", ebgpMultihop: "ebgpMultiHop" },
};

/** Reads the ConfigMap and the AddressPools of older versions as the objects of today. */
function withLegacy(raw: PlacedRaw): readonly PlacedRaw[] {
  const { value, place } = raw;
  const made = (kind: string, name: unknown, spec: unknown): PlacedRaw => ({
    place,
    value: { kind, metadata: { name }, spec },
  });
  const pool = (name: unknown, { protocol, bgpAdvertisements, ...spec }: Fields) => {
    const items = Array.isArray(bgpAdvertisements) && bgpAdvertisements.length > 0
      ? bgpAdvertisements
      : [{}];
    const advertised = { ipAddressPools: [name] };
    return [
      made("IPAddressPool", name, spec),
      ...protocol === "layer2" ? [made("L2Advertisement", name, advertised)] : [],
      ...protocol === "bgp"
        ? items.map((item) => made("BGPAdvertisement", name, { ...item, ...advertised }))
        : [],
    ];
  };
  if (value["kind"] === "AddressPool" && isMapping(value["spec"]) && isMapping(value["metadata"])) {
    return pool(value["metadata"]["name"], value["spec"]);
  }
  const { data } = value;
  if (value["kind"] !== "ConfigMap" || !isMapping(data) || typeof data["config"] !== "string") {
    return [raw];
  }
  const [document] = readYaml(data["config"], { file: place }).documents;
  const config = withCamelCase(document?.value);
  if (!isMapping(config)) return [];
  const { addressPools, peers, bgpCommunities } = config;
  const list = (items: unknown) => Array.isArray(items) ? items.filter(isMapping) : [];
  return [
    ...list(addressPools).flatMap(({ name, ...spec }) => pool(name, spec)),
    ...list(peers).map((spec) => made("BGPPeer", `peer-${spec["peerAddress"]}`, spec)),
    ...isMapping(bgpCommunities)
      ? [made("Community", "communities", {
        communities: Object.entries(bgpCommunities).map(([name, value]) => ({ name, value })),
      })]
      : [],
  ];
}

function withCamelCase(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withCamelCase);
  if (!isMapping(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => {
      const camel = key.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
      const isFree = camel === "matchLabels" || camel === "bgpCommunities";
      return [RENAMED[camel] ?? camel, isFree ? inner : withCamelCase(inner)];
    }),
  );
}

/** Writes the objects that kube-relay would use; the others are problems. */
function write(
  objects: readonly Converted[],
  settings: readonly string[],
  problems: string[],
): Conversion {
  const known = new Map<string, Converted>();
  for (const each of objects) {
    const key = `${each.kind} ${each.name}`;
    if (!known.has(key)) known.set(key, each);
    else problems.push(each.source.error("metadata.name", each.name, "another name").message);
  }
  const routing = defaultConfiguration().routing;
  const asObjects = (kind: string) =>
    [...known.values()].filter((each) => each.kind === kind).map(({ name, spec }, index) => ({
      // The first one has its addresses.
      metadata: { name, creationTimestamp: String(index).padStart(9, "0") },
      spec: Object.fromEntries(spec.map(([field, value]) => [field, value])),
    } as unknown as RoutingObject));
  const joined = joinRoutingObjects({ ...routing, bgp: { ...routing.bgp, enabled: true } }, {
    pools: asObjects(LOAD_BALANCER_POOL.kind) as never,
    peers: asObjects(BGP_PEER.kind) as never,
  });
  for (
    const [kind, verdicts] of [["LoadBalancerPool", joined.pools], [
      "BgpPeer",
      joined.peers,
    ]] as const
  ) {
    for (const [name, { problem }] of verdicts) {
      if (!problem) continue;
      const key = `${kind} ${name}`;
      const { source } = known.get(key)!;
      problems.push(
        `${source.kind} ${source.name}: as ${key}, ${problem.path}: ${problem.message}`,
      );
      known.delete(key);
    }
  }
  const flags = [...new Set(settings)];
  const systems = flags.filter((each) => each.startsWith("--bgp-local-as="));
  const head = [
    ...known.size > 0 ? ["Each kube-relay needs --routing --routing-objects, and:"] : [],
    ...flags.map((each) => `  ${each}`),
    ...systems.length > 1 ? ["A node has one AS: keep one of them."] : [],
    ...problems.map((each) => `NOT CONVERTED: ${each}`),
  ];
  const documents = [...known.values()].map(({ kind, name, spec }) => [
    `apiVersion: ${BGP_PEER.group}/${BGP_PEER.versions[0]}`,
    `kind: ${kind}`,
    `metadata: { name: ${JSON.stringify(name)} }`,
    "spec:",
    ...spec.flatMap(([field, value, ...comments]) => [
      ...comments.map((text) => `  ${comment(text)}`),
      `  ${field}: ${JSON.stringify(value)}`,
    ]),
  ]);
  const text = [head.map(comment), ...documents].filter(({ length }) => length > 0)
    .map((lines) => `${lines.join("\n")}\n`).join("---\n");
  return { text, problems };
}

/** Names of objects are text of strangers: nothing of them may end the comment. */
function comment(text: string): string {
  return `# ${printableText(text)}`;
}
