import * as v from "valibot";
import { type Cidr, cidrContains, prefixLengthOf, tryParseCidr } from "../../net/cidr.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { defineKind, type ManifestReport, type ObjectOf } from "../kind.ts";
import {
  at,
  cidr,
  dnsSubdomain,
  fields,
  guardedFields,
  list,
  metadata,
  namedTexts,
  oneOf,
  pointerAt,
  portNumber,
  portOrName,
  protocol,
  sharedText,
} from "../schema.ts";

// No field is required: an object of a newer API without one has to be read, so that it can isolate.
/** A selector of pods or other objects. */
export const labelSelector = v.nullish(guardedFields({
  matchLabels: at(1, namedTexts("all")),
  matchExpressions: at(
    2,
    list(guardedFields({
      key: pointerAt(1, v.nullish(sharedText)),
      operator: pointerAt(2, v.nullish(oneOf("In", "NotIn", "Exists", "DoesNotExist"))),
      values: at(3, list(sharedText)),
    })),
  ),
}));

const ports = list(guardedFields({
  protocol: pointerAt(1, v.nullish(protocol)),
  port: pointerAt(2, v.nullish(portOrName)),
  endPort: pointerAt(3, v.nullish(portNumber(1))),
}));

const ipBlock = guardedFields({ cidr: pointerAt(1, v.nullish(cidr)), except: at(2, list(cidr)) });

const peers = list(guardedFields({
  podSelector: at(1, labelSelector),
  namespaceSelector: at(2, labelSelector),
  ipBlock: at(3, v.nullish(ipBlock)),
}));

const spec = guardedFields({
  podSelector: at(1, labelSelector),
  policyTypes: at(4, list(oneOf("Ingress", "Egress"))),
  ingress: at(2, list(guardedFields({ from: at(2, peers), ports: at(1, ports) }))),
  egress: at(3, list(guardedFields({ to: at(2, peers), ports: at(1, ports) }))),
});

const schema = fields(
  { metadata: metadata(dnsSubdomain), spec: at(2, v.nullish(spec, {})) },
  "apiVersion kind status",
);

/** A NetworkPolicy as a manifest has it. */
type NetworkPolicyManifest = v.InferOutput<typeof schema>;

/** networking/v1 NetworkPolicy. */
export const NETWORK_POLICY = defineKind({
  kind: "NetworkPolicy",
  group: "networking.k8s.io",
  versions: ["v1"],
  plural: "networkpolicies",
  namespaced: true,
  schema,
  restricts: true,
  complete: completeNetworkPolicy,
});

/** A NetworkPolicy, as far as it is read. */
export type NetworkPolicy = ObjectOf<typeof NETWORK_POLICY>;

/** The specification of a NetworkPolicy. */
export type NetworkPolicySpec = NetworkPolicy["spec"];

/** A selector of pods or namespaces. */
export type LabelSelectorSpec = NonNullable<NetworkPolicySpec["podSelector"]>;

/** An entry of `ports`. */
export type NetworkPolicyPort = NonNullable<
  NonNullable<NetworkPolicySpec["ingress"]>[number]["ports"]
>[number];

/** An entry of `from` or `to`. */
export type NetworkPolicyPeer = NonNullable<
  NonNullable<NetworkPolicySpec["ingress"]>[number]["from"]
>[number];

type Spec = NonNullable<NetworkPolicyManifest["spec"]>;
type Selector = NonNullable<Spec["podSelector"]>;
type Rule = NonNullable<Spec["ingress"]>[number];
type Peer = NonNullable<Rule["from"]>[number];
type IpBlock = NonNullable<Peer["ipBlock"]>;
type Ports = Rule["ports"];
type Path = readonly (string | number)[];

const NAME = /^[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const PREFIX =
  /^(?=.{1,253}$)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/;
const LABEL_KEY = "has to be the key of a label: at most 63 letters, digits, '-', '_' and '.', " +
  "with a letter or digit at both ends, perhaps after a DNS name and a slash";
const LABEL_VALUE = "has to be the value of a label: empty, or at most 63 letters, digits, '-', " +
  "'_' and '.', with a letter or digit at both ends";

/**
 * Completes a manifest: sets the defaults of an API server, and refuses what it would refuse beyond
 * single fields.
 */
function completeNetworkPolicy(
  { metadata, spec = {} as Spec }: NetworkPolicyManifest,
  report: ManifestReport,
): NetworkPolicyManifest {
  const { podSelector, policyTypes, ingress, egress, ...rest } = spec;
  checkSelector(podSelector, ["spec", "podSelector"], report);
  for (const [index, { from }] of (ingress ?? []).entries()) {
    checkPeers(from ?? [], ["spec", "ingress", index, "from"], report);
  }
  for (const [index, { to }] of (egress ?? []).entries()) {
    checkPeers(to ?? [], ["spec", "egress", index, "to"], report);
  }
  if ((policyTypes?.length ?? 0) > 2) {
    const message = "has to hold Ingress, Egress or both, each once";
    report.error({ path: ["spec", "policyTypes"], value: policyTypes, message });
  }
  return {
    metadata,
    spec: {
      ...rest,
      podSelector: podSelector ?? {},
      policyTypes: typesOf(spec),
      ingress: ingress?.map((rule, index) => ({
        ...rule,
        ports: completePorts(rule.ports, ["spec", "ingress", index, "ports"], report),
      })),
      egress: egress?.map((rule, index) => ({
        ...rule,
        ports: completePorts(rule.ports, ["spec", "egress", index, "ports"], report),
      })),
    },
  };
}

/** Without the fields that decide them, the types stay open: the policy isolates both ways. */
function typesOf({ policyTypes, egress, unknownFields }: Partial<Spec> = {}): Spec["policyTypes"] {
  if (policyTypes?.length || unknownFields) return policyTypes;
  return egress?.length ? ["Ingress", "Egress"] : ["Ingress"];
}

function completePorts(ports: Ports, path: Path, report: ManifestReport): Ports {
  return ports?.map((entry, index) => {
    const { port, endPort } = entry;
    const message = typeof port !== "number"
      ? "needs a port number in port"
      : endPort && endPort < port
      ? `has to be ${port} or more, as port is`
      : undefined;
    if (endPort && message) {
      report.error({ path: [...path, index, "endPort"], value: endPort, message });
    }
    return { ...entry, protocol: entry.protocol ?? "TCP" };
  });
}

function checkPeers(peers: readonly Peer[], path: Path, report: ManifestReport): void {
  for (const [index, { podSelector, namespaceSelector, ipBlock }] of peers.entries()) {
    const at = [...path, index];
    const selects = podSelector ?? namespaceSelector;
    if (!selects && !ipBlock) {
      report.error({ path: at, message: "has to hold podSelector, namespaceSelector or ipBlock" });
    } else if (selects && ipBlock) {
      const message = "cannot be combined with podSelector or namespaceSelector: use another entry";
      report.error({ path: [...at, "ipBlock"], message });
    }
    checkSelector(podSelector, [...at, "podSelector"], report);
    checkSelector(namespaceSelector, [...at, "namespaceSelector"], report);
    if (ipBlock) checkBlock(ipBlock, [...at, "ipBlock"], report);
  }
}

function checkBlock({ cidr, except }: IpBlock, path: Path, report: ManifestReport): void {
  if (!cidr) return report.error({ path: [...path, "cidr"], message: "is missing" });
  const block = tryParseCidr(cidr.trim());
  for (const [index, value] of (except ?? []).entries()) {
    const inner = tryParseCidr(value.trim());
    // The schema refuses a block that cannot be parsed.
    if (!block || !inner || isStrictlyWithin(inner, block)) continue;
    const message = `has to lie within cidr, ${cidr}, and be smaller`;
    report.error({ path: [...path, "except", index], value, message });
  }
}

function isStrictlyWithin(inner: Cidr, outer: Cidr): boolean {
  const network = parseIpAddress(inner.slice(0, inner.indexOf("/")));
  return cidrContains(outer, network) && prefixLengthOf(inner) > prefixLengthOf(outer);
}

/** Reports what an API server would refuse in a selector. */
export function checkSelector(
  selector: Selector | null | undefined,
  path: Path,
  report: ManifestReport,
): void {
  for (const [key, value] of Object.entries(selector?.matchLabels ?? {})) {
    const at = [...path, "matchLabels", key];
    if (!isLabelKey(key)) report.error({ path: at, message: LABEL_KEY });
    if (!isLabelValue(value)) report.error({ path: at, value, message: LABEL_VALUE });
  }
  for (const [index, { key, operator, values }] of (selector?.matchExpressions ?? []).entries()) {
    const at = [...path, "matchExpressions", index];
    if (!isLabelKey(key ?? "")) {
      report.error({ path: [...at, "key"], value: key, message: LABEL_KEY });
    }
    if (!operator) report.error({ path: [...at, "operator"], message: "is missing" });
    const needsValues = operator === "In" || operator === "NotIn";
    if (needsValues !== (values ?? []).length > 0) {
      const message = needsValues
        ? `is missing: ${operator} needs it`
        : `cannot stand with ${operator}`;
      report.error({ path: [...at, "values"], message });
    }
    for (const value of values ?? []) {
      if (!isLabelValue(value)) {
        report.error({ path: [...at, "values"], value, message: LABEL_VALUE });
      }
    }
  }
}

function isLabelKey(key: string): boolean {
  const slash = key.indexOf("/");
  return NAME.test(key.slice(slash + 1)) && (slash < 0 || PREFIX.test(key.slice(0, slash)));
}

function isLabelValue(value: string): boolean {
  return value === "" || NAME.test(value);
}
