/**
 * Asks the API server what its caller may do, before a watch fails for it.
 *
 * @module
 */
import type { KubeClient } from "./client.ts";

/** One thing that may be done with all objects of a kind, in all namespaces. */
export interface ResourceAccess {
  readonly verb: "list" | "watch";
  /** Empty for the core group. */
  readonly group: string;
  /** Name of the resource, e.g. `pods`. */
  readonly plural: string;
}

/** Every authenticated user may create these (ClusterRole system:basic-user). */
const PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/** A `SelfSubjectAccessReview` as it comes back, as far as it is read. */
interface ReviewAnswer {
  readonly status?: { readonly allowed?: unknown };
}

/**
 * Returns what of `wanted` the caller may not do, in its order. Throws what {@linkcode KubeClient}
 * throws, also where the server does not answer such questions.
 */
export async function reviewAccess(
  client: Pick<KubeClient, "create">,
  wanted: readonly ResourceAccess[],
  signal: AbortSignal,
): Promise<readonly ResourceAccess[]> {
  const answers = await Promise.all(wanted.map(async ({ verb, group, plural }) => {
    const review = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectAccessReview",
      spec: { resourceAttributes: { verb, group, resource: plural } },
    };
    const answer = Object(await client.create(PATH, review, signal)) as ReviewAnswer;
    return answer.status?.allowed === true;
  }));
  return wanted.filter((_, index) => !answers[index]);
}

/** For a person: `list pods` or `watch networkpolicies.networking.k8s.io`. */
export function describeAccess({ verb, group, plural }: ResourceAccess): string {
  return `${verb} ${plural}${group === "" ? "" : `.${group}`}`;
}

/**
 * The ClusterRole that grants access, as YAML in one line and without double quotes: it stays whole in
 * a line of the log, and `kubectl apply -f -` takes it as it is.
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
