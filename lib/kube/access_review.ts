/**
 * Asks the API server for the caller's permissions, before a watch fails without them.
 *
 * @module
 */
import type { KubeClient } from "./client.ts";

/** Permission for one verb on all objects of a kind. */
export interface ResourceAccess {
  readonly verb: "list" | "watch" | "get" | "create" | "patch";
  /** Empty for the core group. */
  readonly group: string;
  /** Name of the resource, e.g. `pods`, perhaps with a part of it: `services/status`. */
  readonly plural: string;
  /** @default {all namespaces} */
  readonly namespace?: string;
}

/** Every authenticated user may create these (ClusterRole system:basic-user). */
const PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/**
 * Returns the permissions in `wanted` that the caller lacks, in the same order. Throws the errors of
 * {@linkcode KubeClient}, also if the server has no such reviews.
 */
export async function reviewAccess(
  client: Pick<KubeClient, "create">,
  wanted: readonly ResourceAccess[],
  signal: AbortSignal,
): Promise<readonly ResourceAccess[]> {
  const answers = await Promise.all(wanted.map(async ({ verb, group, plural, namespace }) => {
    const [resource, subresource] = plural.split("/");
    const review = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectAccessReview",
      spec: {
        resourceAttributes: {
          ...{ verb, group, resource },
          ...(subresource !== undefined && { subresource }),
          ...(namespace !== undefined && { namespace }),
        },
      },
    };
    const answer: { readonly status?: { readonly allowed?: unknown } } = Object(
      await client.create(PATH, review, signal),
    );
    return answer.status?.allowed === true;
  }));
  return wanted.filter((_, index) => !answers[index]);
}

/** Describes a permission: `list pods` or `watch networkpolicies.networking.k8s.io`. */
export function describeAccess({ verb, group, plural, namespace }: ResourceAccess): string {
  const place = namespace === undefined ? "" : ` in namespace ${namespace}`;
  return `${verb} ${plural}${group === "" ? "" : `.${group}`}${place}`;
}

/**
 * Returns the ClusterRole that grants access, as YAML in one line without double quotes: it fits into
 * one line of the log, and `kubectl apply -f -` accepts it unchanged.
 */
export function clusterRoleYaml(name: string, accesses: readonly ResourceAccess[]): string {
  const rules = new Map<string, { group: string; verbs: string[]; plurals: string[] }>();
  for (const [plural, of] of Map.groupBy(accesses, ({ plural }) => plural)) {
    const verbs = of.map(({ verb }) => verb);
    const { group } = of[0]!;
    const key = `${group} ${verbs.join(" ")}`;
    const rule = rules.get(key);
    if (rule) rule.plurals.push(plural);
    else rules.set(key, { group, verbs, plurals: [plural] });
  }
  const texts = [...rules.values()].map(({ group, verbs, plurals }) =>
    `{apiGroups: [${group || "''"}], resources: [${plurals.join(", ")}], verbs: [${
      verbs.join(", ")
    }]}`
  );
  return `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: ${name}}, ` +
    `rules: [${texts.join(", ")}]}`;
}
