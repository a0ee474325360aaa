/**
 * Tests every kind of client and server credentials in a kubeconfig, and the rotation of each,
 * against a real API server.
 */
import { assertEquals } from "@std/assert";
import { loadKubeAuth } from "../../lib/kube/kubeconfig.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { type ApiMachinery, startApiMachinery } from "../support/stages/api_machinery.ts";
import {
  type KubeconfigUser,
  replaceFile,
  writeKubeconfig,
} from "../support/builders/kubeconfig_file.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { Follower } from "./follower.ts";
import type { PemPair } from "./server.ts";
import { testService } from "./test_service.ts";

/** An additional name in the server's certificate, besides its addresses. */
const SERVER_NAME = "apiserver.kube-relay.test";

/** Defines the tests. */
export function defineCredentialTests(program: string): void {
  Deno.test("loadKubeAuth() gives credentials that a real API server accepts", async (t) => {
    await using stage = await Stage.start(program);
    for (const [name, prepare] of Object.entries(USERS)) {
      await t.step(name, async () => {
        await using follower = await stage.follow(await prepare(stage));
        await follower.synced();
        assertEquals(follower.informers.services.size, 1);
      });
    }
  });

  Deno.test("ApiSource trusts the given CA and server name alone", async (t) => {
    await using stage = await Stage.start(program);
    const user = { token: stage.server.token() };
    await t.step("a name that the certificate has is accepted", async () => {
      await using follower = await stage.follow(user, { tlsServerName: SERVER_NAME });
      await follower.synced();
    });
    await t.step("another name is refused, with the cure", async () => {
      await using follower = await stage.follow(user, { tlsServerName: "other.kube-relay.test" });
      await follower.fails("tls-server-name");
    });
    await t.step("another CA is refused, with the cure", async () => {
      await using follower = await stage.follow(user, { ca: await stage.server.clientAuthority() });
      await follower.fails("certificate-authority-data");
    });
  });

  for (const [name, rotate] of Object.entries(ROTATIONS)) {
    Deno.test(`ApiSource follows on, without churn, when ${name}`, async () => {
      await using stage = await Stage.start(program);
      const { before, after } = await rotate(stage);
      await using follower = await stage.follow(before);
      await follower.synced();
      follower.events.length = 0;

      const replace = await after();
      await stage.restartApi();
      await follower.fails("401");
      await replace();
      await stage.server.update(testService("web", "10.0.0.2"));
      await follower.sees("web", "10.0.0.2");
      assertEquals(follower.events, ["update Service default/web"]);
    });
  }
}

const USERS: Readonly<Record<string, (stage: Stage) => Promise<KubeconfigUser>>> = {
  "a client certificate": ({ server }) =>
    Promise.resolve({ certificate: server.clientCertificate() }),
  "a client certificate in files": (stage) =>
    stage.writeCertificate(stage.server.clientCertificate()),
};

/**
 * The user of the kubeconfig at first. `after` lets the server refuse it, and gives what replaces the
 * user's credentials by ones that are accepted.
 */
interface Rotation {
  readonly before: KubeconfigUser;
  readonly after: () => Promise<() => Promise<unknown>>;
}

const ROTATIONS: Readonly<Record<string, (stage: Stage) => Promise<Rotation>>> = {
  "the token in its kubeconfig is replaced": (stage) =>
    Promise.resolve({
      before: { token: stage.server.token() },
      after: async () => {
        const token = await stage.server.rotateToken();
        return () => stage.writeKubeconfig({ token });
      },
    }),
  "the kubelet renews its certificate, whose kubeconfig it uses": async (stage) => ({
    before: await stage.renewKubelet(stage.server.clientCertificate()),
    after: async () => {
      const certificate = await stage.server.rotateClientCertificate();
      return () => stage.renewKubelet(certificate);
    },
  }),
  "its client certificate is replaced": async (stage) => ({
    before: await stage.writeCertificate(stage.server.clientCertificate()),
    after: async () => {
      const certificate = await stage.server.rotateClientCertificate();
      return () => stage.writeCertificate(certificate);
    },
  }),
};

/** A server with one Service in it, and a folder for the files of its client. */
class Stage implements AsyncDisposable {
  private constructor(readonly server: ApiMachinery, readonly folder: string) {}

  static async start(program: string): Promise<Stage> {
    const server = await startApiMachinery({ program });
    await server.create(testService("web"));
    return new Stage(server, await Deno.makeTempDir({ prefix: "kube-relay-credentials-" }));
  }

  async follow(
    user: KubeconfigUser,
    more: { readonly ca?: string; readonly tlsServerName?: string } = {},
  ): Promise<Follower> {
    const kubeconfig = await this.writeKubeconfig(user, more);
    const logger = new MemoryLogger();
    const auth = await loadKubeAuth({ clock: systemClock, logger }, {
      kubeconfig,
      env: () => undefined,
    });
    return new Follower({ auth });
  }

  async writeKubeconfig(
    user: KubeconfigUser,
    more: { readonly ca?: string; readonly tlsServerName?: string } = {},
  ): Promise<string> {
    const path = `${this.folder}/kubeconfig`;
    await writeKubeconfig(path, { server: this.server.url, ca: this.server.ca, user, ...more });
    return path;
  }

  async writeCertificate({ cert, key }: PemPair): Promise<KubeconfigUser> {
    const [certificateFile, keyFile] = [`${this.folder}/client.crt`, `${this.folder}/client.key`];
    await replaceFile(keyFile, key);
    await replaceFile(certificateFile, cert);
    return { certificateFile, keyFile };
  }

  /**
   * Writes a certificate as the kubelet does: key and certificate in a new file, to which a link is
   * replaced. The kubeconfig of kubeadm's kubelet names the link twice.
   */
  async renewKubelet({ cert, key }: PemPair): Promise<KubeconfigUser> {
    const file = `${this.folder}/kubelet-client-${crypto.randomUUID()}.pem`;
    const link = `${this.folder}/kubelet-client-current.pem`;
    await Deno.writeTextFile(file, cert + key, { mode: 0o600 });
    await Deno.symlink(file, `${link}.updated`);
    await Deno.rename(`${link}.updated`, link);
    return { certificateFile: link, keyFile: link };
  }

  /**
   * Breaks every connection: the server accepts open ones, but new requests show their credentials.
   */
  async restartApi(): Promise<void> {
    await this.server.killApi();
    await this.server.restartApi();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server[Symbol.asyncDispose]();
    await Deno.remove(this.folder, { recursive: true });
  }
}
