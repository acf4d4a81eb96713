user:1
user:2
user:1
