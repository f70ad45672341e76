// Uses a server at the URL given as first argument through the npm package etcd3, and prints what it says, one line per
// answer, without what differs from server to server. The last line is "done". An error nobody expects ends it with code 1.
'use strict';

const path = require('path');
const { Etcd3, Range } = require('etcd3');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const url = process.argv[2];

function say(what, answer) {
  console.log(`${what}: ${JSON.stringify(answer)}`);
}

// text makes keys and values readable.
function text(kv) {
  return kv && `${kv.key}=${kv.value} (${kv.create_revision} ${kv.mod_revision} ${kv.version} ${kv.lease !== '0'})`;
}

// refused says how a promise is rejected.
async function refused(what, promise) {
  try {
    await promise;
    say(what, 'not refused');
  } catch (err) {
    say(what, `${err.constructor.name}: ${err.message}`.replace(/\d{10,}/g, 'ID'));
  }
}

// once waits for an event.
function once(emitter, event) {
  return new Promise((resolve, reject) => {
    emitter.once(event, resolve);
    if (event !== 'error') {
      emitter.once('error', reject);
    }
  });
}

async function keys(client) {
  await client.put('foo').value('bar');
  say('get', await client.get('foo').string());
  say('number', await client.put('n').value(42).then(() => client.get('n').number()));
  say('json', await client.put('j').value('{"a":[1,2]}').then(() => client.get('j').json()));
  const bytes = Buffer.from([0, 255, 128, 10]);
  await client.put(Buffer.from([1, 0, 255])).value(bytes);
  say('bytes', (await client.get(Buffer.from([1, 0, 255])).buffer()).equals(bytes));
  say('nothing', await client.get('nothing').string());
  say('exists', [await client.get('foo').exists(), await client.get('nothing').exists()]);
  const previous = await client.put('foo').value('bar2').getPrevious();
  say('previous', text(previous));
  say('at an earlier revision', await client.get('foo').revision(previous.mod_revision).string());
  await client.put('foo').touch();
  say('touched', text((await client.get('foo').exec()).kvs[0]));
  await refused('touch of nothing', client.put('nothing').touch());
  await refused('no key', client.put('').value('x').exec());
  await refused('future revision', client.get('foo').revision(100000).string());
  say('large value', (await client.put('large').value('x'.repeat(1 << 20)).then(() => client.get('large').string())).length);
  await refused('too large value', client.put('larger').value('x'.repeat(3 << 19)).exec());
}

async function ranges(client) {
  for (const [i, name] of ['c', 'a', 'd', 'b'].entries()) {
    await client.put(`r/${name}`).value(i);
  }
  say('prefix', await client.getAll().prefix('r/').numbers());
  say('keys', await client.getAll().prefix('r/').keys());
  say('sorted', await client.getAll().prefix('r/').sort('Mod', 'Descend').limit(2).keys());
  say('count', await client.getAll().prefix('r/').count());
  say('range', await client.getAll().inRange(new Range('r/a', 'r/c')).strings());
  say('all', (await client.getAll().keys()).length);
  say('serializable', await client.getAll().prefix('r/').serializable(true).keys());
  const answer = await client.getAll().prefix('r/').limit(3).exec();
  say('more', [answer.more, answer.count, answer.kvs.length]);
  say('deleted before', (await client.delete().key('r/a').getPrevious()).map(text));
  say('deleted', (await client.delete().inRange(new Range('r/b', 'r/d'))).deleted);
  say('deleted prefix', (await client.delete().prefix('r/')).deleted);
  say('deleted nothing', (await client.delete().key('r/a')).deleted);
}

async function transactions(client) {
  const answer = ({ succeeded, responses }) => [succeeded, responses.map(r => r.response)];
  await client.put('t').value('1');
  say('then', answer(await client.if('t', 'Value', '==', '1').then(client.put('t').value('2')).else(client.get('t')).commit()));
  say('else', (await client.if('t', 'Value', '==', '1').then(client.put('t').value('3')).else(client.get('t')).commit())
    .responses.map(r => text(r.response_range.kvs[0])));
  for (const [column, comparison, value] of [['Version', '==', 2], ['Create', '>', 0], ['Mod', '<', 1000], ['Lease', '==', 0],
    ['Value', '!=', '2'], ['Version', '!=', 2]]) {
    say(`${column} ${comparison} ${value}`, (await client.if('t', column, comparison, value).commit()).succeeded);
  }
  say('and', (await client.if('t', 'Value', '==', '2').and('t', 'Version', '>', 5)
    .then(client.delete().key('t')).commit()).succeeded);
  await refused('one key twice',
    client.if('t', 'Version', '>', 0).then(client.put('t').value('a'), client.put('t').value('b')).commit());
  await client.put('sum').value(0);
  await Promise.all([...Array(8)].map(() => client.stm({ retries: 100 }).transact(async tx => {
    await tx.put('sum').value((await tx.get('sum').number()) + 1);
  })));
  say('sum', await client.get('sum').number());
}

async function watches(client) {
  const seen = [];
  const watcher = await client.watch().prefix('w/').withPreviousKV().create();
  let enough;
  const all = new Promise(resolve => { enough = resolve; });
  const note = kind => (kv, previous) => {
    seen.push([kind, `${kv.key}`, `${kv.value}`, previous ? `${previous.value}` : null]);
    if (`${kv.key}` === 'w/end') {
      enough();
    }
  };
  watcher.on('put', note('put'));
  watcher.on('delete', note('delete'));
  await client.put('w/a').value('1');
  await client.put('w/a').value('2');
  const { header } = await client.put('w/b').value('3');
  await client.put('elsewhere').value('4');
  await client.delete().prefix('w/');
  await client.put('w/end').value('');
  await all;
  say('watched', seen);
  const late = client.watch().key('w/b').startRevision(header.revision).only('delete').watcher();
  say('history', `${(await once(late, 'delete')).key}`);
  await late.cancel();
  await watcher.cancel();
}

async function leases(client) {
  const lease = client.lease(60, { autoKeepAlive: false });
  await lease.grant();
  await lease.put('l/a').value('1');
  say('time to live', (await lease.keepaliveOnce()).TTL);
  const status = await client.leaseClient.leaseTimeToLive({ ID: await lease.grant(), keys: true });
  say('keys of the lease', [status.grantedTTL, status.keys.map(String)]);
  say('listed', (await client.leaseClient.leaseLeases()).leases.some(l => l.ID === status.ID));
  await lease.revoke();
  say('after its end', await client.get('l/a').string());
  await refused('keepalive after its end', lease.keepaliveOnce());
  await refused('put under no lease', client.put('l/b').lease('12345').value('x').exec());
  say('time to live of none', (await client.leaseClient.leaseTimeToLive({ ID: '12345' })).TTL);
  await refused('revocation of none', client.leaseClient.leaseRevoke({ ID: '12345' }));
  await refused('too long', client.lease(10000000000, { autoKeepAlive: false }).grant());
  const kept = client.lease(3);
  await kept.put('l/c').value('kept');
  const { TTL } = await once(kept, 'keepaliveSucceeded');
  say('kept alive', TTL);
  const lost = once(kept, 'lost');
  await client.leaseClient.leaseRevoke({ ID: await kept.grant() });
  say('lost', (await lost).constructor.name);
}

async function locks(client) {
  const lock = client.lock('mutex');
  await lock.acquire();
  await refused('lock that is held', client.lock('mutex').acquire());
  await lock.release();
  say('lock', await client.lock('mutex').do(async () => (await client.getAll().prefix('mutex').keys()).length));
  say('released', await client.getAll().prefix('mutex').count());
}

async function elections(client) {
  const election = client.election('boss', 30);
  say('no leader', await election.leader() === undefined);
  const observer = await election.observe();
  const first = election.campaign('one');
  await first.wait();
  say('elected', await election.leader());
  const observed = value => new Promise(resolve => {
    const look = () => {
      if (observer.leader() === value) {
        observer.removeListener('change', look);
        resolve(value);
      }
    };
    observer.on('change', look);
    look();
  });
  say('observed', await observed('one'));
  await first.proclaim('one again');
  say('observed', await observed('one again'));
  const second = election.campaign('two');
  await second.getCampaignKey();
  const won = second.wait();
  await first.resign();
  await won;
  say('observed', await observed('two'));
  await second.resign();
  say('observed nobody', await observed(undefined) === undefined);
  await observer.cancel();
}

async function namespaces(client) {
  const inner = client.namespace('ns/').namespace('user/');
  await inner.put('a').value('1');
  await client.put('ns/user/b').value('2');
  say('inner', await inner.getAll().strings());
  say('outer', await client.namespace('ns/').getAll().keys());
  const watcher = await inner.watch().key('c').create();
  const put = once(watcher, 'put');
  await inner.put('c').value('3');
  say('watched inside', `${(await put).key}`);
  await watcher.cancel();
  await inner.namespace('deep/').lock('m').do(() => undefined);
  await inner.if('a', 'Value', '==', '1').then(inner.put('a').value('4')).commit();
  say('after a transaction', await client.get('ns/user/a').string());
  await inner.delete().all();
  say('left', await client.getAll().prefix('ns/').count());
}

async function upkeep(client) {
  const status = await client.maintenance.status({});
  say('status', [status.version, status.leader !== '0', Number(status.dbSize) > 0]);
  say('members', (await client.cluster.memberList({})).members.map(m => m.name));
  say('alarms', (await client.maintenance.alarm({ action: 'Get', memberID: 0, alarm: 'None' })).alarms);
  const { header } = await client.put('old').value('1');
  await client.put('old').value('2');
  await client.kv.compact({ revision: (Number(header.revision) + 1).toString(), physical: true });
  await refused('compacted', client.get('old').revision(header.revision).string());
  await client.maintenance.defragment({});
  say('after defragmentation', await client.get('old').string());
}

// The Lock and Election services, which etcd3 does not use.
async function services(client) {
  const load = file => grpc.loadPackageDefinition(loader.loadSync(path.join(__dirname, file), { keepCase: true, longs: String }));
  const address = new URL(url).host;
  const stub = service => new service(address, grpc.credentials.createInsecure());
  const lock = stub(load('lock.proto').v3lockpb.Lock);
  const election = stub(load('election.proto').v3electionpb.Election);
  const call = (on, method, request) => new Promise((resolve, reject) => {
    on[method](request, (err, answer) => (err ? reject(err) : resolve(answer)));
  });
  const owners = [client.lease(60, { autoKeepAlive: false }), client.lease(60, { autoKeepAlive: false })];
  const [one, other] = [await owners[0].grant(), await owners[1].grant()];
  const named = (key, lease) => `${key}`.replace(BigInt(lease).toString(16), 'lease');
  const held = await call(lock, 'Lock', { name: Buffer.from('s'), lease: one });
  say('locked', named(held.key, one));
  const waiting = call(lock, 'Lock', { name: Buffer.from('s'), lease: other });
  await call(lock, 'Unlock', { key: held.key });
  say('locked next', named((await waiting).key, other));
  await refused('lock under no lease', call(lock, 'Lock', { name: Buffer.from('s'), lease: '12345' }));
  await refused('unlock of nothing', call(lock, 'Unlock', {}));
  const { leader } = await call(election, 'Campaign', { name: Buffer.from('e'), lease: one, value: Buffer.from('v') });
  say('elected', [`${leader.name}`, named(leader.key, one), leader.lease === one]);
  const observing = election.Observe({ name: Buffer.from('e') });
  observing.on('error', () => undefined); // it is cancelled below
  say('observed', `${(await once(observing, 'data')).kv.value}`);
  const next = once(observing, 'data');
  await call(election, 'Proclaim', { leader, value: Buffer.from('w') });
  say('observed', `${(await next).kv.value}`);
  observing.cancel();
  say('leader', `${(await call(election, 'Leader', { name: Buffer.from('e') })).kv.value}`);
  await call(election, 'Resign', { leader });
  await refused('proclamation after the resignation', call(election, 'Proclaim', { leader, value: Buffer.from('x') }));
  await refused('leader of none', call(election, 'Leader', { name: Buffer.from('e') }));
  await refused('resignation of nobody', call(election, 'Resign', {}));
  lock.close();
  election.close();
}

async function main() {
  const client = new Etcd3({ hosts: url, dialTimeout: 20000 });
  for (const part of [keys, ranges, transactions, watches, leases, locks, elections, namespaces, services, upkeep]) {
    await part(client);
    say('end of', part.name);
  }
  client.close();
  console.log('done');
  // A renewal that is answered after its lease was given up starts a timer in etcd3, as long as the lease, that nobody
  // stops: without this the process may stay for half a minute.
  process.exit(0);
}

main().catch(err => {
  console.error(err);
  process.exit(1);
});
