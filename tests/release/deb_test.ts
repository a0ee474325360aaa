/**
 * The life of the Debian package on a node, with real packets.
 *
 * @module
 */
import { assertEquals, assertMatch } from "@std/assert";
import { isMissing } from "../support/requirement.ts";
import { makeNext, PackageRoot, RELEASE, RELEASE_REQUIREMENTS } from "./package_root.ts";

const ignore = isMissing("tests/release/deb_test.ts", RELEASE_REQUIREMENTS);

Deno.test({ name: "the package for Debian", ignore }, async (t) => {
  await using root = await PackageRoot.create();
  const next = await makeNext("deb.sh");
  try {
    await t.step("starts nothing, makes the user and the folder of manifests", async () => {
      const said = await root.play(
        `inside dpkg -i /release/kube-relay_0.1.0_amd64.deb >&2
        cat $R/var/log/systemctl
        stat -c '%A %U %n' $R/etc/kube-relay/manifests | sed "s#$R##"
        inside id kube-relay | sed 's/=[0-9]*/=/g'
        inside kube-relay --version
        echo "processes: $(says pgrep -x kube-relay)"
        inside dpkg -V kube-relay
        uniq -d $R/usr/lib/systemd/system/kube-relay.service`,
        RELEASE,
      );
      assertMatch(
        said,
        /^systemctl daemon-reload\ndrwxr-xr-x root .*\/manifests\nuid=\(kube-relay\) gid=\(kube-relay\) .*\nkube-relay v0\.1\.0 .*\nprocesses: no\n$/,
      );
    });

    await t.step("uses a group of the user's name", async () => {
      const said = await root.play(
        `inside groupadd kube-relay; inside dpkg -i /release/kube-relay_0.1.0_amd64.deb >&2
        inside id kube-relay | sed 's/=[0-9]*/=/g'`,
        RELEASE,
      );
      assertEquals(said, "uid=(kube-relay) gid=(kube-relay) groups=(kube-relay)\n");
    });

    await t.step(
      "an upgrade restarts the service without losing a request, and asks nothing",
      async () => {
        const said = await root.play(
          `inside dpkg -i /release/kube-relay_0.1.0_amd64.deb >&2; serve
        read -r before <$R/run/service.pid; : >$R/var/log/systemctl
        asks_during inside dpkg -i /release/kube-relay_0.99.0_amd64.deb >said; grep requests said
        cat $R/var/log/systemctl
        read -r after <$R/run/service.pid
        echo "restarted: $(says test "$before" != "$after")"
        grep -c proxy-mode=nftables $R/etc/default/kube-relay
        ask && echo answers
        inside systemctl stop kube-relay.service`,
          next,
        );
        assertEquals(
          said,
          [
            "requests failed: 0",
            "systemctl daemon-reload",
            "systemctl --quiet is-active kube-relay.service",
            "systemctl try-restart kube-relay.service kube-relay-userspace.service",
            "restarted: yes",
            "1",
            "answers",
            "",
          ].join("\n"),
        );
      },
    );

    await t.step("a removal leaves rules and settings, a purge removes both", async () => {
      const said = await root.play(
        `inside dpkg -i /release/kube-relay_0.1.0_amd64.deb >&2; serve
        inside dpkg -r kube-relay >said; grep '^kube-relay: ' said
        echo "runs: $(says pgrep -x kube-relay), tables: $(rules), settings: $(says test -e $R/etc/default/kube-relay)"
        ask && echo answers
        inside dpkg -P kube-relay >&2
        echo "tables: $(rules), answers: $(says ask)"
        echo "left: $(cd $R && ls -d etc/kube-relay etc/default/kube-relay var/lib/kube-relay* var/cache/kube-relay* run/kube-relay usr/share/doc/kube-relay 2>/dev/null)"`,
        RELEASE,
      );
      assertMatch(
        said,
        /^kube-relay: the rules .* stay\.\nkube-relay: To remove them: \/var\/lib\/kube-relay-removed\/kube-relay --cleanup .*\nruns: no, tables: [1-9], settings: yes\nanswers\ntables: 0, answers: no\nleft: \n$/,
      );
    });

    await t.step("the command that a removal names removes the rules", async () => {
      const said = await root.play(
        `inside dpkg -i /release/kube-relay_0.1.0_amd64.deb >&2; serve
        inside dpkg -r kube-relay >said
        inside sh -c "$(sed -n 's/.*To remove them: //p' said)" >&2
        echo "tables: $(rules), left: $(cd $R && ls -d var/cache/kube-relay* run/kube-relay var/lib/kube-relay-removed 2>/dev/null)"
        inside dpkg -P kube-relay`,
        RELEASE,
      );
      assertMatch(said, /^tables: 0, left: \n/);
    });

    await t.step("a purge while another proxy serves the node removes no rule", async () => {
      const said = await root.play(
        `inside dpkg -i /release/kube-relay_0.1.0_amd64.deb >&2; serve; inside dpkg -r kube-relay >&2
        printf 'HTTP/1.1 200 OK\\r\\ncontent-length: 8\\r\\n\\r\\niptables' >answer
        socat TCP-LISTEN:10249,bind=127.0.0.1,fork,reuseaddr SYSTEM:"cat $PWD/answer; sleep 1" &
        wait_for socat -T 2 - TCP:127.0.0.1:10249
        inside dpkg -P kube-relay >said; grep another said
        echo "answers: $(says ask)"`,
        RELEASE,
      );
      assertEquals(
        said,
        "kube-relay: another proxy serves this node, so no rule was removed.\nanswers: yes\n",
      );
    });

    await t.step("a purge removes nothing that another kube-relay serves from", async () => {
      const said = await root.play(
        `inside dpkg -i /release/kube-relay_0.1.0_amd64.deb >&2
        cp $R/usr/bin/kube-relay $R/usr/local/bin/kube-relay
        sed 's#/usr/bin#/usr/local/bin#' $R/usr/lib/systemd/system/kube-relay.service >unit
        serve; inside systemctl stop kube-relay.service
        wants=$R/etc/systemd/system/multi-user.target.wants; mkdir -p $wants
        for unit in kube-relay kube-relay-bird; do ln -s ../$unit.service $wants; done
        inside dpkg -r kube-relay >&2
        cp unit $R/etc/systemd/system/kube-relay.service
        inside systemctl start kube-relay.service
        wait_for test -S $R/run/kube-relay/control.sock; wait_for ask
        inside dpkg -P kube-relay >said; grep '^kube-relay: ' said
        (cd $R && ls -d etc/kube-relay/manifests/web.yaml run/kube-relay/control.sock var/cache/kube-relay/v* var/lib/kube-relay-removed | sed 's/v0.*/v/')
        ls $wants | grep kube
        ask && echo answers; inside systemctl stop kube-relay.service`,
        RELEASE,
      );
      assertMatch(
        said,
        /^kube-relay: another proxy .*\nkube-relay: To remove them when .*\nkube-relay: a kube-relay runs, so these stay: .*\netc\/kube-relay\/manifests\/web\.yaml\nrun\/kube-relay\/control\.sock\nvar\/cache\/kube-relay\/v\nvar\/lib\/kube-relay-removed\nkube-relay\.service\nanswers\n$/,
      );
    });

    await t.step("can be removed without room for the executable", async () => {
      const said = await root.play(
        `inside dpkg -i /release/kube-relay_0.1.0_amd64.deb >&2
        mkdir $R/var/lib/kube-relay-removed
        mount -t tmpfs -o size=1M tmpfs $R/var/lib/kube-relay-removed
        inside dpkg -r kube-relay >said; grep '^kube-relay: ' said
        ls -A $R/var/lib/kube-relay-removed; test ! -e $R/usr/bin/kube-relay`,
        RELEASE,
      );
      assertMatch(said, /^kube-relay: the rules .* stay\.\n$/);
    });

    await t.step("policy-rc.d can forbid the restart", async () => {
      const said = await root.play(
        `inside dpkg -i /release/kube-relay_0.1.0_amd64.deb >&2; serve
        printf '#!/bin/sh\\nexit 101\\n' >$R/usr/sbin/policy-rc.d && chmod +x $R/usr/sbin/policy-rc.d
        running=$(echo $R/var/cache/kube-relay/v0.1.0-*); touch -d '10 days ago' $running
        : >$R/var/log/systemctl; inside dpkg -i /release/kube-relay_0.99.0_amd64.deb >&2
        grep -c restart $R/var/log/systemctl || true
        ls $R/var/cache/kube-relay | sed 's/-.*//'; ls $running/main.js | sed 's#.*/##'
        inside systemctl stop kube-relay.service`,
        next,
      );
      assertEquals(said, "0\nv0.1.0\nv0.99.0\nmain.js\n");
    });
  } finally {
    await Deno.remove(next, { recursive: true });
  }
});
