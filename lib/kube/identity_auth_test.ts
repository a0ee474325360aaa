import { assertEquals, assertRejects, assertStrictEquals } from "@std/assert";
import { replaceFile } from "../../tests/support/builders/kubeconfig_file.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { IdentityAuth, type KubeIdentity } from "./identity_auth.ts";
import { KubeAuthError } from "./kube_auth.ts";

const SERVER = "https://192.0.2.1:6443";

function pem(text: string): string {
  return `-----BEGIN CERTIFICATE-----\n${text}\n-----END CERTIFICATE-----\n`;
}

/** Runs a test in a folder of its own, with an identity that may be replaced. */
async function inFolder(
  run: (
    stage: {
      readonly folder: string;
      readonly logger: MemoryLogger;
      auth(identity: Partial<KubeIdentity>): IdentityAuth;
      replaceIdentity(identity: Partial<KubeIdentity> | Error): void;
    },
  ) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kube-relay-identity-" });
  const logger = new MemoryLogger();
  let current: KubeIdentity | Error;
  const complete = (identity: Partial<KubeIdentity>): KubeIdentity => ({
    server: SERVER,
    source: "kubeconfig",
    insecure: false,
    ...identity,
  });
  try {
    await run({
      folder,
      logger,
      auth(identity) {
        current = complete(identity);
        const readIdentity = () =>
          current instanceof Error ? Promise.reject(current) : Promise.resolve(current);
        return new IdentityAuth(logger, readIdentity, current);
      },
      replaceIdentity(identity) {
        current = identity instanceof Error ? identity : complete(identity);
      },
    });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("IdentityAuth.tls() gives the same object until a file changes", () =>
  inFolder(async ({ folder, auth: create }) => {
    await replaceFile(`${folder}/ca.crt`, pem("one"));
    const auth = create({ ca: { field: "ca", file: `${folder}/ca.crt` } });
    const first = await auth.tls();
    assertStrictEquals(await auth.tls(), first);
    // Written again with the same content: no new connection for that.
    await replaceFile(`${folder}/ca.crt`, pem("one"));
    assertStrictEquals(await auth.tls(), first);
    await replaceFile(`${folder}/ca.crt`, pem("two"));
    assertEquals((await auth.tls()).ca, pem("two"));
  }));

Deno.test("IdentityAuth.tls() keeps the former files while the new ones can't be read, and reports it once", () =>
  inFolder(async ({ folder, logger, auth: create }) => {
    await replaceFile(`${folder}/ca.crt`, pem("one"));
    const auth = create({ ca: { field: "ca", file: `${folder}/ca.crt` } });
    const first = await auth.tls();
    await replaceFile(`${folder}/ca.crt`, "half of a");
    assertStrictEquals(await auth.tls(), first);
    assertStrictEquals(await auth.tls(), first);
    await Deno.remove(`${folder}/ca.crt`);
    assertStrictEquals(await auth.tls(), first);
    assertEquals(logger.lines.map(({ level }) => level), ["warn", "warn"]);
    await replaceFile(`${folder}/ca.crt`, pem("two"));
    assertEquals((await auth.tls()).ca, pem("two"));
  }));

Deno.test("IdentityAuth.tls() throws when there are no former files", () =>
  inFolder(async ({ folder, auth: create }) => {
    const auth = create({ ca: { field: "the CA", file: `${folder}/ca.crt` } });
    await assertRejects(() => auth.tls(), KubeAuthError, "Cannot read the CA");
  }));

Deno.test("IdentityAuth.authorization() reads the token file each time, and keeps the last good one", () =>
  inFolder(async ({ folder, logger, auth: create }) => {
    const file = `${folder}/token`;
    await replaceFile(file, "one\n");
    const auth = create({ tokenFile: { field: "token", file } });
    assertEquals(await auth.authorization(), "Bearer one");
    await replaceFile(file, "two");
    assertEquals(await auth.authorization(), "Bearer two");
    await Deno.remove(file);
    assertEquals(await auth.authorization(), "Bearer two");
    assertEquals(logger.lines.length, 1);
  }));

Deno.test("IdentityAuth reads no endless file", () =>
  inFolder(async ({ auth: create }) => {
    const endless = { field: "the file", file: "/dev/zero" };
    const tooLong = "it has more than 1048576 bytes";
    const token = () => create({ tokenFile: endless }).authorization();
    await assertRejects(token, KubeAuthError, tooLong);
    await assertRejects(() => create({ ca: endless }).tls(), KubeAuthError, tooLong);
  }));

Deno.test("IdentityAuth.authorization() gives nothing to an http:// server", () =>
  inFolder(async ({ auth: create }) => {
    const auth = create({ server: "http://127.0.0.1:8001", authorization: "Bearer secret" });
    assertEquals(await auth.authorization(), undefined);
  }));

Deno.test("IdentityAuth.refresh() uses the current content of the kubeconfig", () =>
  inFolder(async ({ auth: create, replaceIdentity }) => {
    const auth = create({ authorization: "Bearer one" });
    await auth.tls();
    replaceIdentity({ authorization: "Bearer two", tlsServerName: "kubernetes" });
    assertEquals(await auth.authorization(), "Bearer one");
    await auth.refresh();
    assertEquals(await auth.authorization(), "Bearer two");
    assertEquals((await auth.tls()).serverName, "kubernetes");
  }));

Deno.test("IdentityAuth.refresh() keeps the former identity when there is no new one", () =>
  inFolder(async ({ auth: create, replaceIdentity, logger }) => {
    const auth = create({ authorization: "Bearer one" });
    await auth.tls();
    replaceIdentity(new KubeAuthError("gone"));
    await auth.refresh();
    await auth.tls();
    assertEquals(await auth.authorization(), "Bearer one");
    assertEquals(logger.lines.map(({ fields }) => fields.error), ["gone"]);
  }));

Deno.test("IdentityAuth uses the certificate of a plugin, the same object while it stays", () =>
  inFolder(async ({ auth: create }) => {
    let cert = "one";
    const ask = () => Promise.resolve({ cert, key: "key" });
    const auth = create({ plugin: { name: "kubelogin", ask, refuse() {} } });
    const first = await auth.tls();
    assertEquals([first.cert, first.key], ["one", "key"]);
    assertStrictEquals(await auth.tls(), first);
    cert = "two";
    assertEquals((await auth.tls()).cert, "two");
    assertEquals(await auth.authorization(), undefined);
  }));
