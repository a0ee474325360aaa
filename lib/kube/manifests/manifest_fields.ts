/**
 * The fields that the objects of the API have, read or not: a name that is none of them is a slip of the pen.
 *
 * @module
 */
import { closest, distance } from "fastest-levenshtein";
import type { KubeKinds } from "../../api/objects.ts";
import type { FieldPath } from "./manifest_problem.ts";

/** Field names; `null` where nobody looks deeper. A list has the fields of its entries. */
interface FieldTree {
  readonly [name: string]: FieldTree | null;
}

function names(words: string): FieldTree {
  return Object.fromEntries(words.split(" ").map((word) => [word, null]));
}

const OBJECT: FieldTree = {
  ...names("apiVersion kind"),
  metadata: names(
    "name generateName namespace selfLink uid resourceVersion generation creationTimestamp " +
      "deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers managedFields",
  ),
};

const ENDPOINTS_ADDRESS = names("ip hostname nodeName targetRef");

const FIELDS: Readonly<Record<keyof KubeKinds, FieldTree>> = {
  Service: {
    ...OBJECT,
    spec: {
      ...names(
        "selector clusterIP clusterIPs type externalIPs sessionAffinity sessionAffinityConfig loadBalancerIP " +
          "loadBalancerClass loadBalancerSourceRanges allocateLoadBalancerNodePorts externalName " +
          "externalTrafficPolicy internalTrafficPolicy healthCheckNodePort publishNotReadyAddresses " +
          "ipFamilies ipFamilyPolicy trafficDistribution",
      ),
      ports: names("name protocol appProtocol port targetPort nodePort"),
    },
    status: null,
  },
  EndpointSlice: {
    ...OBJECT,
    ...names("addressType"),
    endpoints: {
      ...names("addresses hostname targetRef deprecatedTopology topology nodeName zone"),
      conditions: names("ready serving terminating"),
      hints: names("forZones forNodes"),
    },
    ports: names("name protocol port appProtocol"),
  },
  Endpoints: {
    ...OBJECT,
    subsets: {
      addresses: ENDPOINTS_ADDRESS,
      notReadyAddresses: ENDPOINTS_ADDRESS,
      ports: names("name protocol port appProtocol"),
    },
  },
  Node: { ...OBJECT, ...names("spec status") },
  ServiceCIDR: { ...OBJECT, spec: names("cidrs"), status: null },
};

/** A name that is no field. */
interface UnknownField {
  readonly path: FieldPath;
  readonly value: unknown;
  /** What was probably meant. */
  readonly nearest: string | undefined;
}

/** The fields of a raw object that its kind does not have. */
export function unknownFields(kind: keyof KubeKinds, raw: unknown): readonly UnknownField[] {
  const found: UnknownField[] = [];
  collect(raw, FIELDS[kind], { path: [], found });
  return found;
}

/** The name among `known` that someone who wrote `name` probably meant; `undefined` when none is near. */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  // The distance costs the product of the lengths, and names in a manifest may be long.
  if (name.length > 64) return undefined;
  const best = closest(name.toLowerCase(), known.map((word) => word.toLowerCase()));
  const nearest = known.find((word) => word.toLowerCase() === best);
  const allowed = Math.max(1, Math.floor(name.length / 4));
  const isNear = distance(name.toLowerCase(), best) <= allowed ||
    // Swapped letters count double in a distance: "prot".
    lettersOf(name.toLowerCase()) === lettersOf(best);
  return isNear ? nearest : undefined;
}

function lettersOf(name: string): string {
  return [...name].sort().join("");
}

function collect(
  value: unknown,
  tree: FieldTree,
  { path, found }: { readonly path: FieldPath; readonly found: UnknownField[] },
): void {
  if (Array.isArray(value)) {
    value.forEach((entry, index) => collect(entry, tree, { path: [...path, index], found }));
  } else if (typeof value === "object" && value !== null) {
    for (const [name, child] of Object.entries(value)) {
      const known = Object.hasOwn(tree, name) ? tree[name] : undefined;
      if (known === undefined) {
        const nearest = nearestName(name, Object.keys(tree));
        found.push({ path: [...path, name], value: child, nearest });
      } else if (known) {
        collect(child, known, { path: [...path, name], found });
      }
    }
  }
}
