"""What the worker API is made of: which recorder, who commands it.

    worker      the life of a worker: its thread, its switch
    recorders   the two recorders as one: rank, switch word, what is followed
    switchfile  TaskD's switch file
    manager     TaskD's manager: registration, status, commands
    http2       as much gRPC as that takes, on the standard library
    messages    as much protobuf
"""
