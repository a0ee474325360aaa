/**
 * Checks the types of a kubeconfig's fields, as kubectl does. Pure.
 *
 * @module
 */
import * as v from "valibot";
import { KubeAuthError } from "./kube_identity.ts";

const TEXT = v.nullish(v.string("text"));
const FLAG = v.nullish(v.boolean("true or false"));

function fields<Entries extends v.ObjectEntries>(entries: Entries) {
  return v.nullish(v.object(entries, "fields"));
}

function named<Entries extends v.ObjectEntries>(entries: Entries) {
  return v.nullish(v.array(v.object(entries, "fields"), "a list"));
}

/** The fields that kube-relay reads; `exec` is checked when the plugin is created. */
const SHAPE = v.nullish(v.object({
  "current-context": TEXT,
  contexts: named({ name: TEXT, context: fields({ cluster: TEXT, user: TEXT }) }),
  clusters: named({
    name: TEXT,
    cluster: fields({
      server: TEXT,
      "certificate-authority": TEXT,
      "certificate-authority-data": TEXT,
      "tls-server-name": TEXT,
      "proxy-url": TEXT,
      "insecure-skip-tls-verify": FLAG,
    }),
  }),
  users: named({
    name: TEXT,
    user: fields({
      token: TEXT,
      tokenFile: TEXT,
      username: TEXT,
      password: TEXT,
      "client-certificate": TEXT,
      "client-certificate-data": TEXT,
      "client-key": TEXT,
      "client-key-data": TEXT,
    }),
  }),
}, "fields"));

/**
 * Returns the first field of a wrong type, e.g. `users[0].user.token has to be text`, or
 * `undefined`. Shows no value, because it may be a secret: `token: 12345` is a number in YAML.
 */
export function kubeconfigShapeProblem(raw: unknown): string | undefined {
  const [issue] = v.safeParse(SHAPE, raw, { abortEarly: true }).issues ?? [];
  if (issue === undefined) return undefined;
  const path = (issue.path ?? []).map(({ key }) =>
    typeof key === "number" ? `[${key}]` : `.${String(key)}`
  );
  return `${path.join("").slice(1) || "it"} has to be ${issue.message}`;
}

/**
 * Returns the URL of an API server. HOST:PORT gets a scheme as in client-go: https if any setting
 * of TLS is known (a CA, a certificate), otherwise http. Throws a {@linkcode KubeAuthError} that
 * names the field.
 */
export function serverUrl(
  field: string,
  text: string,
  { usesTls }: { readonly usesTls: boolean },
): string {
  const hasScheme = text.includes("://");
  const url = URL.parse(hasScheme ? text : `${usesTls ? "https" : "http"}://${text}`);
  const isHttp = url !== null && /^https?:$/.test(url.protocol);
  if (isHttp && hasScheme) return text;
  if (isHttp && url.pathname === "/" && url.search === "") return url.origin;
  throw new KubeAuthError(
    `Cannot use ${field}: '${text}' has to be a URL such as https://192.0.2.1:6443`,
  );
}
