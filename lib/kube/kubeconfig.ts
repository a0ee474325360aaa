/**
 * Finds the API server and the credentials: a kubeconfig, a pod's service account, or --master.
 *
 * @module
 */
import * as v from "valibot";
import { readYaml } from "../config/yaml_source.ts";
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import { formatHostPort } from "../net/port.ts";
import type { Clock } from "../os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../os/command_runner.ts";
import { readTextUpTo } from "../os/read_text_up_to.ts";
import { credentialPlugin, type CredentialPluginOptions } from "./credential_plugin.ts";
import { IdentityAuth, type KubeIdentity, type PemSource } from "./identity_auth.ts";
import { type CredentialPlugin, type KubeAuth, KubeAuthError } from "./kube_auth.ts";

/** The folder in which the kubelet puts the account's files. */
const SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount";

/** The places where the API server and the identity are configured. */
interface KubeAuthOptions {
  /** Path of the kubeconfig; by default `KUBECONFIG`, then the pod's service account. */
  readonly kubeconfig?: string;
  /** URL of the server, overriding the found one. */
  readonly master?: string;
  readonly env: (name: string) => string | undefined;
  /** @default {"/var/run/secrets/kubernetes.io/serviceaccount"} */
  readonly serviceAccountFolder?: string;
}

/** Makes plugins from their part of a kubeconfig. */
type PluginOf = (part: CredentialPluginOptions) => CredentialPlugin;

/**
 * Finds the API server and reads the credentials. Throws a {@linkcode KubeAuthError} that names
 * file, field and remedy. Later problems with the files are logged, and the former credentials stay
 * in use. `commands` runs credential plugins.
 */
export async function loadKubeAuth(
  { clock, logger, commands = systemCommandRunner }: {
    readonly clock: Clock;
    readonly logger: Logger;
    readonly commands?: CommandRunner;
  },
  options: KubeAuthOptions,
): Promise<KubeAuth> {
  // A plugin stays, with its credentials, while its part of the kubeconfig is the same.
  let known: { readonly text: string; readonly plugin: CredentialPlugin } | undefined;
  const pluginOf: PluginOf = (part) => {
    const text = JSON.stringify(part);
    if (known?.text !== text) known = { text, plugin: credentialPlugin(clock, commands, part) };
    return known.plugin;
  };
  const readIdentity = () => findIdentity(pluginOf, options);
  const identity = await readIdentity();
  const auth = new IdentityAuth(logger, readIdentity, identity);
  await auth.load();
  await warnOfOpenFiles(identity, logger);
  if (identity.insecure) {
    logger.warn(
      "The API server's certificate is not checked: anyone on the network path can read the token",
      { field: "insecure-skip-tls-verify", file: identity.file },
    );
  }
  return auth;
}

async function findIdentity(
  pluginOf: PluginOf,
  { kubeconfig, master, env, serviceAccountFolder: folder = SERVICE_ACCOUNT_FOLDER }:
    KubeAuthOptions,
): Promise<KubeIdentity> {
  const file = kubeconfig ?? env("KUBECONFIG");
  if (file) return await readKubeconfig(pluginOf, file, master);
  const [host, port] = [env("KUBERNETES_SERVICE_HOST"), env("KUBERNETES_SERVICE_PORT")];
  const server = master ?? (host && port ? `https://${formatHostPort(host, Number(port))}` : "");
  const tokenFile = `${folder}/token`;
  if (server !== "" && await Deno.stat(tokenFile).then(() => true, () => false)) {
    return {
      server: serverUrl("--master", server, { usesTls: true }),
      source: "in-cluster account",
      ca: { field: "the service account's ca.crt", file: `${folder}/ca.crt` },
      insecure: false,
      tokenFile: { field: "the service account's token", file: tokenFile },
    };
  }
  if (master !== undefined) {
    const server = serverUrl("--master", master, { usesTls: false });
    return { server, source: "--master alone", insecure: false };
  }
  throw new KubeAuthError(
    "Cannot find the API server: there is no --kubeconfig, and this is no pod with a service account; " +
      "give --kubeconfig FILE (on a k3s node /var/lib/rancher/k3s/agent/kubeproxy.kubeconfig), " +
      "or --manifests PATH to do without an API server",
  );
}

const OTHERS_READ = 0o004;
const OTHERS_WRITE = 0o002;

/**
 * Warns of a kubeconfig, key or token that every user can read or write. The kubelet is responsible
 * for a pod's own files.
 */
async function warnOfOpenFiles(
  { source, file, key, tokenFile }: KubeIdentity,
  logger: Logger,
): Promise<void> {
  if (source === "in-cluster account") return;
  for (const path of [file, key && "file" in key ? key.file : undefined, tokenFile?.file]) {
    if (path === undefined) continue;
    const mode = (await Deno.stat(path)).mode ?? 0;
    const verbs = [
      ...(mode & OTHERS_READ ? ["read"] : []),
      ...(mode & OTHERS_WRITE ? ["write"] : []),
    ];
    if (verbs.length === 0) continue;
    logger.warn("File with credentials is open to every user of this machine", {
      file: path,
      othersMay: verbs.join(" and "),
      cure: `chmod 600 ${path}`,
    });
  }
}

const FIELDS = "has to be fields";
const TEXT = v.nullish(v.string("has to be text"));
const NEEDED = v.pipe(
  v.nullish(v.unknown(), ""),
  v.string("has to be text"),
  v.nonEmpty("is missing"),
);
const ANYTHING = v.nullish(v.unknown());

/** Fields that have to be there. */
function needed<Entries extends v.ObjectEntries>(entries: Entries) {
  return v.pipe(
    v.nullish(v.unknown(), null),
    v.check((value) => value !== null, "is missing"),
    v.object(entries, FIELDS),
  );
}

/** A list of named entries. */
function named<Entries extends v.ObjectEntries>(entries: Entries) {
  const entry = v.object({ name: NEEDED, ...entries }, FIELDS);
  return v.nullish(v.array(entry, "has to be a list"), []);
}

/** The fields that kube-relay reads; the plugin checks `exec`. */
const KUBECONFIG = v.object({
  "current-context": v.nullish(v.string("has to be text"), ""),
  contexts: named({ context: needed({ cluster: NEEDED, user: TEXT }) }),
  clusters: named({
    cluster: needed({
      server: NEEDED,
      "certificate-authority": TEXT,
      "certificate-authority-data": TEXT,
      "tls-server-name": TEXT,
      "proxy-url": TEXT,
      "insecure-skip-tls-verify": v.nullish(v.boolean("has to be true or false"), false),
      extensions: ANYTHING,
    }),
  }),
  users: named({
    user: v.nullish(
      v.object({
        token: TEXT,
        tokenFile: TEXT,
        username: TEXT,
        password: TEXT,
        "client-certificate": TEXT,
        "client-certificate-data": TEXT,
        "client-key": TEXT,
        "client-key-data": TEXT,
        exec: ANYTHING,
        as: ANYTHING,
        "auth-provider": ANYTHING,
      }, FIELDS),
      {},
    ),
  }),
}, FIELDS);

type Kubeconfig = v.InferOutput<typeof KUBECONFIG>;

/** Reads one kubeconfig: its current context, with cluster and user. */
async function readKubeconfig(
  pluginOf: PluginOf,
  file: string,
  master: string | undefined,
): Promise<KubeIdentity> {
  const unusable = (reason: string) =>
    new KubeAuthError(`Cannot use kubeconfig '${file}': ${reason}`);
  const folder = file.slice(0, file.lastIndexOf("/") + 1) || "./";
  // As in kubectl, a relative path starts at the kubeconfig's folder.
  const absolute = (path: string) => path.startsWith("/") ? path : folder + path;
  /** As in kubectl, data in the file itself has precedence over a path. */
  const pemOf = (
    path: string,
    data: string | null | undefined,
    pem: string | null | undefined,
  ): PemSource | undefined => {
    if (data) return { field: `${path}-data of '${file}'`, base64: data };
    return pem ? { field: `${path} of '${file}'`, file: absolute(pem) } : undefined;
  };
  const found = parseKubeconfig(await readText(file), unusable);
  const { name, cluster, userName, user } = currentOf(found, unusable);
  const [clusterPath, userPath] = [`clusters['${name}'].cluster`, `users['${userName}'].user`];
  if (cluster["proxy-url"]) throw unusable(`${clusterPath}.proxy-url is not supported; remove it`);
  for (const field of ["as", "auth-provider"] as const) {
    if (!user[field]) continue;
    const cure = "remove it, or use a credential plugin (exec), a token or a certificate";
    throw unusable(`${userPath}.${field} is not supported; ${cure}`);
  }
  const ca = pemOf(
    `${clusterPath}.certificate-authority`,
    cluster["certificate-authority-data"],
    cluster["certificate-authority"],
  );
  const certData = user["client-certificate-data"];
  const cert = pemOf(`${userPath}.client-certificate`, certData, user["client-certificate"]);
  const key = pemOf(`${userPath}.client-key`, user["client-key-data"], user["client-key"]);
  const insecure = cluster["insecure-skip-tls-verify"];
  if (ca && insecure) {
    const both = "certificate-authority and insecure-skip-tls-verify exclude each other";
    throw unusable(`${clusterPath}: ${both}; remove the second`);
  }
  if (!cert !== !key) {
    throw unusable(`${userPath}: client-certificate and client-key must be given together`);
  }
  const server = serverUrl(
    master === undefined ? `${clusterPath}.server of '${file}'` : "--master",
    master ?? cluster.server.replace(/\/$/, ""),
    { usesTls: !!(cert || ca || insecure) },
  );
  const tlsServerName = cluster["tls-server-name"];
  const authorization = authorizationOf(user);
  const { tokenFile, exec } = user;
  const config = execConfigOf(cluster.extensions);
  return {
    ...{ source: "kubeconfig", file, server, insecure },
    ...(ca && { ca }),
    ...(cert && { cert }),
    ...(key && { key }),
    ...(tlsServerName && { tlsServerName }),
    ...(authorization !== undefined && { authorization }),
    ...(tokenFile && {
      tokenFile: { field: `${userPath}.tokenFile of '${file}'`, file: absolute(tokenFile) },
    }),
    ...(exec !== null && exec !== undefined && {
      plugin: pluginOf({
        exec,
        field: `${userPath}.exec of '${file}'`,
        folder,
        cluster: {
          ...{ server, insecure },
          ...(ca && { ca }),
          ...(tlsServerName && { tlsServerName }),
          ...(config !== undefined && { config }),
        },
      }),
    }),
  };
}

/** The size of a hundred clusters with certificates; a longer file is no kubeconfig. */
const MAX_BYTES = 1024 * 1024;

async function readText(file: string): Promise<string> {
  try {
    return await readTextUpTo(file, MAX_BYTES);
  } catch (cause) {
    const isMissing = cause instanceof Deno.errors.NotFound;
    const reason = isMissing
      ? "there is no such file; --kubeconfig or clientConnection.kubeconfig has to name one"
      : messageOf(cause);
    const message = `Cannot read kubeconfig '${file}': ${reason}`;
    throw new KubeAuthError(message, isMissing ? {} : { cause });
  }
}

/**
 * Reads the text of a kubeconfig. Throws what `unusable` makes of the first field that is missing or has
 * the wrong type. Shows no value, because it may be a secret: `token: 12345` is a number in YAML.
 */
function parseKubeconfig(text: string, unusable: (reason: string) => Error): Kubeconfig {
  const { documents, errors: [error] } = readYaml(text, { file: "", quick: true });
  if (error) throw unusable(`it is not YAML at line ${error.line}, column ${error.column}`);
  const value = documents[0]?.value ?? {};
  const { output, issues, success } = v.safeParse(KUBECONFIG, value, { abortEarly: true });
  if (success) return output;
  const path = (issues[0].path ?? []).map(({ key }) =>
    typeof key === "number" ? `[${key}]` : `.${String(key)}`
  );
  throw unusable(`${path.join("").slice(1) || "it"} ${issues[0].message}`);
}

function currentOf(
  { clusters, users, contexts, "current-context": current }: Kubeconfig,
  unusable: (reason: string) => Error,
) {
  const context = contexts.find(({ name }) => name === current)?.context;
  if (!context) {
    const known = contexts.map(({ name }) => `'${name}'`).join(", ") || "none";
    throw unusable(`current-context is '${current ?? ""}', and its contexts are: ${known}`);
  }
  const path = `contexts['${current}'].context`;
  const cluster = clusters.find(({ name }) => name === context.cluster);
  if (!cluster) {
    throw unusable(`${path}.cluster is '${context.cluster}', which is not in 'clusters'`);
  }
  // A context may have no user.
  const none: Kubeconfig["users"][number] = { name: "", user: {} };
  const user = context.user ? users.find(({ name }) => name === context.user) : none;
  if (!user) throw unusable(`${path}.user is '${context.user}', which is not in 'users'`);
  return { ...cluster, userName: user.name, user: user.user };
}

/** What a cluster's entry has for plugins. */
function execConfigOf(extensions: unknown): unknown {
  return (Array.isArray(extensions) ? extensions : [])
    .find((extension) => extension?.name === "client.authentication.k8s.io/exec")?.extension;
}

function authorizationOf(
  { token, username, password }: Kubeconfig["users"][number]["user"],
): string | undefined {
  if (token) return `Bearer ${token}`;
  if (!username) return undefined;
  return `Basic ${new TextEncoder().encode(`${username}:${password ?? ""}`).toBase64()}`;
}

/**
 * Returns the URL of an API server. HOST:PORT gets a scheme as in client-go: https if any setting
 * of TLS is known (a CA, a certificate), otherwise http. Throws a {@linkcode KubeAuthError} that
 * names the field.
 */
function serverUrl(
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
