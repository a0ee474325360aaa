/**
 * Kubeconfig files. Only this file imports `@kubernetes/client-node`, and only its parser of
 * clusters, users and contexts: the module with `KubeConfig` also loads an HTTP client and every
 * API type, 10 MB of unused memory.
 *
 * @module
 */
import {
  type Cluster,
  type Context,
  newClusters,
  newContexts,
  newUsers,
  type User,
} from "@kubernetes/client-node/dist/config_types.js";
import { parse } from "@std/yaml";
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import type { Clock } from "../os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../os/command_runner.ts";
import { readTextUpTo } from "../os/read_text_up_to.ts";
import {
  credentialPlugin,
  type CredentialPluginDependencies,
  type CredentialPluginOptions,
} from "./credential_plugin.ts";
import { IdentityAuth } from "./identity_auth.ts";
import { inClusterIdentity } from "./in_cluster.ts";
import type { KubeAuth } from "./kube_auth.ts";
import { kubeconfigShapeProblem, serverUrl } from "./kubeconfig_shape.ts";
import {
  type CredentialPlugin,
  KubeAuthError,
  type KubeIdentity,
  type PemSource,
  warnOfOpenFiles,
} from "./kube_identity.ts";

/** Dependencies of {@linkcode loadKubeAuth}. */
interface KubeAuthDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Runs credential plugins. @default {systemCommandRunner} */
  readonly commands?: CommandRunner;
}

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

/**
 * Finds the API server and reads the credentials. Throws a {@linkcode KubeAuthError} that names
 * file, field and remedy. Later problems with the files are logged, and the former credentials stay
 * in use.
 */
export async function loadKubeAuth(
  { clock, logger, commands = systemCommandRunner }: KubeAuthDependencies,
  options: KubeAuthOptions,
): Promise<KubeAuth> {
  const pluginOf = pluginKeeper({ clock, commands });
  const readIdentity = () => findIdentity(pluginOf, options);
  const identity = await readIdentity();
  const auth = new IdentityAuth({ logger, readIdentity }, identity);
  await auth.load();
  await warnOfOpenFiles(identity, logger);
  if (identity.insecure) {
    logger.warn(
      "The API server's certificate is not checked: anyone on the network path can read the token",
      {
        field: "insecure-skip-tls-verify",
        file: identity.file,
      },
    );
  }
  return auth;
}

/** Makes plugins from their part of a kubeconfig. */
type PluginOf = (options: CredentialPluginOptions) => CredentialPlugin;

/** A plugin stays, with its credentials, while its part of the kubeconfig is the same. */
function pluginKeeper(dependencies: CredentialPluginDependencies): PluginOf {
  let known: { readonly text: string; readonly plugin: CredentialPlugin } | undefined;
  return (options) => {
    const text = JSON.stringify(options);
    if (known?.text !== text) known = { text, plugin: credentialPlugin(dependencies, options) };
    return known.plugin;
  };
}

async function findIdentity(
  pluginOf: PluginOf,
  { kubeconfig, master, env, serviceAccountFolder }: KubeAuthOptions,
): Promise<KubeIdentity> {
  const masterUrl = (tls: { readonly usesTls: boolean }) =>
    master === undefined ? undefined : serverUrl("--master", master, tls);
  const file = kubeconfig ?? env("KUBECONFIG");
  if (file) return await readKubeconfig(pluginOf, { file, master });
  const inCluster = await inClusterIdentity({
    env,
    master: masterUrl({ usesTls: true }),
    serviceAccountFolder,
  });
  if (inCluster) return inCluster;
  const server = masterUrl({ usesTls: false });
  if (server !== undefined) return { server, source: "--master alone", insecure: false };
  throw new KubeAuthError(
    "Cannot find the API server: there is no --kubeconfig, and this is no pod with a service account; " +
      "give --kubeconfig FILE (on a k3s node /var/lib/rancher/k3s/agent/kubeproxy.kubeconfig), " +
      "or --manifests PATH to do without an API server",
  );
}

/** Reads one kubeconfig: its current context, with cluster and user. */
async function readKubeconfig(
  pluginOf: PluginOf,
  { file, master }: { readonly file: string; readonly master: string | undefined },
): Promise<KubeIdentity> {
  const text = await readText(file);
  const raw = parseYaml(text, file);
  const problem = kubeconfigShapeProblem(raw);
  if (problem) throw unusable(file, problem);
  const folder = file.slice(0, file.lastIndexOf("/") + 1) || "./";
  const { cluster, user } = currentOf(entriesOf(raw, file), file);
  const hasCert = !!(user.certData || user.certFile);
  const known = clusterPart(cluster, { file, folder, master, hasCert });
  const config = execConfigOf(raw, cluster.name);
  return {
    source: "kubeconfig",
    file,
    ...known,
    ...userPart({ user, file, folder, tokenFile: tokenFileOf(raw, user.name) }),
    ...(user.exec && {
      plugin: pluginOf({
        exec: user.exec,
        field: `users['${user.name}'].user.exec of '${file}'`,
        folder,
        cluster: { ...known, ...(config !== undefined && { config }) },
      }),
    }),
  };
}

function clusterPart(
  cluster: Cluster,
  { file, folder, master, hasCert }: {
    readonly file: string;
    readonly folder: string;
    readonly master: string | undefined;
    readonly hasCert: boolean;
  },
): Pick<KubeIdentity, "server" | "insecure" | "ca" | "tlsServerName"> {
  const path = `clusters['${cluster.name}'].cluster`;
  if (cluster.proxyUrl) throw unusable(file, `${path}.proxy-url is not supported; remove it`);
  const ca = pemSource(`${path}.certificate-authority of '${file}'`, {
    data: cluster.caData,
    file: absolutePath(folder, cluster.caFile),
  });
  if (ca && cluster.skipTLSVerify) {
    const both = "certificate-authority and insecure-skip-tls-verify exclude each other";
    throw unusable(file, `${path}: ${both}; remove the second`);
  }
  const field = master === undefined ? `${path}.server of '${file}'` : "--master";
  const usesTls = hasCert || ca !== undefined || cluster.skipTLSVerify;
  return {
    server: serverUrl(field, master ?? cluster.server, { usesTls }),
    insecure: cluster.skipTLSVerify,
    ...(ca && { ca }),
    ...(cluster.tlsServerName && { tlsServerName: cluster.tlsServerName }),
  };
}

function userPart(
  { user, file, folder, tokenFile }: {
    readonly user: User;
    readonly file: string;
    readonly folder: string;
    readonly tokenFile: string | undefined;
  },
): Pick<KubeIdentity, "cert" | "key" | "authorization" | "tokenFile"> {
  const path = `users['${user.name}'].user`;
  const field = (name: string) => `${path}.${name} of '${file}'`;
  for (
    const [name, value] of [["as", user.impersonateUser], ["auth-provider", user.authProvider]]
  ) {
    if (value) {
      const cure = "remove it, or use a credential plugin (exec), a token or a certificate";
      throw unusable(file, `${path}.${name} is not supported; ${cure}`);
    }
  }
  const cert = pemSource(field("client-certificate"), {
    data: user.certData,
    file: absolutePath(folder, user.certFile),
  });
  const key = pemSource(field("client-key"), {
    data: user.keyData,
    file: absolutePath(folder, user.keyFile),
  });
  if (!cert !== !key) {
    throw unusable(file, `${path}: client-certificate and client-key must be given together`);
  }
  const authorization = authorizationOf(user);
  return {
    ...(cert && { cert }),
    ...(key && { key }),
    ...(authorization !== undefined && { authorization }),
    ...(tokenFile !== undefined && {
      tokenFile: { field: field("tokenFile"), file: absolutePath(folder, tokenFile) },
    }),
  };
}

/** The lists of a kubeconfig, and the name of the context. */
interface Entries {
  readonly clusters: readonly Cluster[];
  readonly users: readonly User[];
  readonly contexts: readonly Context[];
  readonly current: string | undefined;
}

function entriesOf(raw: unknown, file: string): Entries {
  const document = (raw ?? {}) as Record<string, unknown>;
  const current = document["current-context"];
  try {
    return {
      clusters: newClusters(document["clusters"]),
      users: newUsers(document["users"]),
      contexts: newContexts(document["contexts"]),
      current: typeof current === "string" ? current : undefined,
    };
  } catch (cause) {
    throw unusable(file, messageOf(cause), cause);
  }
}

function currentOf(
  { clusters, users, contexts, current }: Entries,
  file: string,
): { cluster: Cluster; user: User } {
  const context = contexts.find(({ name }) => name === current);
  if (!current || !context) {
    const known = contexts.map(({ name }) => `'${name}'`).join(", ") || "none";
    throw unusable(file, `current-context is '${current ?? ""}', and its contexts are: ${known}`);
  }
  const path = `contexts['${current}'].context`;
  const cluster = clusters.find(({ name }) => name === context.cluster);
  if (!cluster) {
    throw unusable(file, `${path}.cluster is '${context.cluster}', which is not in 'clusters'`);
  }
  // A context may have no user.
  const user = context.user ? users.find(({ name }) => name === context.user) : { name: "" };
  if (!user) throw unusable(file, `${path}.user is '${context.user}', which is not in 'users'`);
  return { cluster, user };
}

/** client-node does not know `tokenFile`: a request would have no token. */
function tokenFileOf(raw: unknown, userName: string): string | undefined {
  const file: unknown = entryOf(raw, "users", userName)?.user?.tokenFile;
  return typeof file === "string" && file !== "" ? file : undefined;
}

/** What a cluster's entry has for plugins. client-node does not know extensions. */
function execConfigOf(raw: unknown, clusterName: string): unknown {
  const { extensions } = entryOf(raw, "clusters", clusterName)?.cluster ?? {};
  return (Array.isArray(extensions) ? extensions : [])
    .find((extension) => extension?.name === "client.authentication.k8s.io/exec")?.extension;
}

function entryOf(raw: unknown, list: "clusters" | "users", name: string) {
  const entries = (raw as Record<string, unknown> | null)?.[list];
  return (Array.isArray(entries) ? entries : []).find((entry) => entry?.name === name);
}

function authorizationOf({ token, username, password = "" }: User): string | undefined {
  if (token) return `Bearer ${token}`;
  if (!username) return undefined;
  return `Basic ${new TextEncoder().encode(`${username}:${password}`).toBase64()}`;
}

/** As in kubectl, a relative path starts at the kubeconfig's folder. */
function absolutePath<Path extends string | undefined>(folder: string, path: Path): Path | string {
  return path && !path.startsWith("/") ? folder + path : path;
}

/** As in kubectl, data in the file itself has precedence over a path. */
function pemSource(
  field: string,
  { data, file }: { readonly data: string | undefined; readonly file: string | undefined },
): PemSource | undefined {
  if (data) return { field: field.replace(" of ", "-data of "), base64: data };
  return file ? { field, file } : undefined;
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

function parseYaml(text: string, file: string): unknown {
  try {
    return parse(text);
  } catch (error) {
    // The message and its cause quote the file, which may contain a token.
    const [place = ""] = / at line \d+, column \d+/.exec(messageOf(error)) ?? [];
    throw unusable(file, `it is not YAML${place}`);
  }
}

function unusable(file: string, reason: string, cause?: unknown): KubeAuthError {
  return new KubeAuthError(`Cannot use kubeconfig '${file}': ${reason}`, { cause });
}
